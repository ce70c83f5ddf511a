"""What is known of a step that was read from a log, and not measured in the process that trained it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

MAX_WORD = 64
"""Characters of a source or a framework."""
MAX_KEYS = 512
"""Names in one list."""
MAX_KEY_LENGTH = 128


class LogFactsError(ValueError):
    """Facts that cannot be; the message names the field, the value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Where a step was read, and what the reading cannot tell. Nothing can be changed in a job that is read."""

    source: str
    """Kind of the log: `jsonl`, `tensorboard`, `wandb` and so on."""
    framework: str
    """Whose keys they are: `trl`, `verl` and so on."""
    censored: dict[str, Literal["above", "below"]] = field(default_factory=dict)
    """Scalars that were logged after a clamp or a mask: the true value lies at what is told or above, or at it or
    below."""
    vanished: tuple[str, ...] = ()
    """Scalars that were in every one of the steps before, and are missing in this one, while others are there."""
    lag_seconds: float | None = None
    """From the time of logging to that of reading; None where the log does not say when."""

    def __post_init__(self) -> None:
        for name in ("source", "framework"):
            if not 0 < len(getattr(self, name)) <= MAX_WORD:
                raise LogFactsError(
                    f"log.{name}: {getattr(self, name)[:MAX_WORD]!r} must have 1 to {MAX_WORD} characters"
                )
        for name in ("censored", "vanished"):
            keys = getattr(self, name)
            if len(keys) > MAX_KEYS:
                raise LogFactsError(f"log.{name}: {len(keys)} entries are more than {MAX_KEYS}; report fewer")
            for key in keys:
                if len(key) > MAX_KEY_LENGTH:
                    told = key[:MAX_KEY_LENGTH]
                    raise LogFactsError(f"log.{name}: the name {told}... is longer than {MAX_KEY_LENGTH} characters")
        if self.lag_seconds is not None and not 0 <= self.lag_seconds < math.inf:
            raise LogFactsError(f"log.lag_seconds: {self.lag_seconds} is negative or no number; give None")
