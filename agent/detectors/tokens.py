"""Nothing is trained: no token is under the loss mask.

CRITICAL from the second step in a row. One empty batch happens (a dynamic filter, a short last batch) and is
INCONCLUSIVE; two mean that masks, log-probs or answers are missing upstream, and training is frozen without an error.
Expected false alarms: none beyond runs that mean it, such as a long evaluation phase that still reports steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensSettings:
    """Patience with empty batches."""

    empty_steps: int = 2
    """Steps in a row without a token at which it alarms."""

    def __post_init__(self) -> None:
        require(1 <= self.empty_steps <= MOST, "detectors.tokens.empty_steps", self.empty_steps, f"1 to {MOST}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Counts empty steps."""

    ROLE: ClassVar[Role] = Role.INPUT
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    empty: int = 0
    """Steps in a row without a token."""

    def update(self, settings: TokensSettings, reading: Reading) -> tuple[Tokens, Finding]:
        """See the module."""
        if reading.summary.log is not None:
            return self, Finding(state=State.NOT_OBSERVED, message="tokens: not observed (a log does not count them)")
        if reading.summary.tokens:
            return Tokens(), Finding(state=State.OK, message=f"{reading.summary.tokens} tokens")
        empty = self.empty + 1
        return Tokens(empty=empty), Finding(
            state=State.CRITICAL if empty >= settings.empty_steps else State.INCONCLUSIVE,
            score=empty / settings.empty_steps,
            evidence={"empty_steps": float(empty)},
            message=f"no trainable tokens for {empty} step{'s' if empty > 1 else ''}",
        )
