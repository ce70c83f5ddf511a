"""A scalar that was in the log of every step is missing, while others go on.

WARN at once, of jobs that are read from their log: loggers leave out what is not finite, so a key that stops is the one
sign of it that a log can give. It is no proof: a key may stop for other reasons, and no value is claimed. Who reads the
log says which are missing (`trimtab.api.tail`), after 20 steps that all had them. In a process every value is counted,
and nothing can vanish. Expected false alarms: a logger whose settings change in the middle of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State


@dataclass(frozen=True, slots=True, kw_only=True)
class VanishedSettings:
    """There is nothing to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanished:
    """Remembers nothing: the reader of the log does."""

    ROLE: ClassVar[Role] = Role.INPUT
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    def update(self, settings: VanishedSettings, reading: Reading) -> tuple[Vanished, Finding]:  # noqa: ARG002
        """See the module."""
        log = reading.summary.log
        if log is None:
            return self, Finding(state=State.NOT_OBSERVED, message="measured in the process: no log is read")
        if not log.vanished:
            return self, Finding(state=State.OK, message="what is always logged is there")
        names = ", ".join(log.vanished)
        verb = "is" if len(log.vanished) == 1 else "are"
        return self, Finding(
            state=State.WARN,
            score=float(len(log.vanished)),
            evidence={"vanished": float(len(log.vanished))},
            message=f"{names} {verb} missing from the log, where every step had it, while others go on",
        )
