"""What a person is told of a job that is read from its log."""

from __future__ import annotations

from pydantic import Field

from trimtab.agent.run_state import RunState
from trimtab.api.views import View

OBSERVE_ONLY = "observe only (read from logs)"
_SIGNS = {"above": ">=", "below": "<="}


class LogView(View):
    """Where the newest step was read, and what the log cannot tell."""

    source: str = Field(description="Kind of the log.")
    framework: str = Field(description="Whose keys they are.")
    lag_seconds: float | None = Field(
        description="From the logging of the newest step to its reading; null where the log does not say."
    )
    censored: dict[str, str] = Field(
        description="Scalars that are logged after a clamp or a mask, as the bound on the true value that they are: "
        "`>=3 (censored)`."
    )
    vanished: list[str] = Field(description="Scalars that every step had, and that are missing now.")


def log_view(state: RunState) -> LogView | None:
    """Of a job in this state; None where it reports by itself, or has not yet."""
    log = None if state.reported is None else state.reported.log
    if log is None or state.reported is None:
        return None
    return LogView(
        source=log.source,
        framework=log.framework,
        lag_seconds=log.lag_seconds,
        censored={name: as_bound(value, log.censored[name]) for name, value in sorted(state.reported.censored.items())},
        vanished=list(log.vanished),
    )


def as_bound(value: float, side: str) -> str:
    """A censored value as what it says: the true one lies there or beyond."""
    return f"{_SIGNS[side]}{value:.6g} (censored)"
