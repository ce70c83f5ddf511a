"""Responses that are not in the language of the task: median5(garbage fraction) > 5 %.

A late sign: on small collapsing runs it came 8 to 55 steps after the reward had fallen to 60 % of its peak, and once
not at all; its highest five-step mean over 13 healthy runs was 1.15 %. So it confirms, and what it names is visible
damage. The median, because one batch that is half garbage is no state of the run, and three of five are. Expected false
alarms: none seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from trimtab.agent.checks import require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageSettings:
    """The limit."""

    limit: float = 0.05
    """On the median garbage fraction."""

    def __post_init__(self) -> None:
        require(0 < self.limit < 1, "detectors.garbage.limit", self.limit, "between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """Remembers nothing: the window is the signal's own."""

    ROLE: ClassVar[Role] = Role.HARM
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    def update(self, settings: GarbageSettings, reading: Reading) -> tuple[Garbage, Finding]:
        """See the module."""
        mean = reading.median("garbage_fraction")
        if mean is None or not isfinite(mean):
            state = State.INCONCLUSIVE if mean is not None else reading.missing("garbage_fraction")
            return self, Finding(state=state, message="no window of finite garbage fractions")
        return self, Finding(
            state=State.WARN if mean > settings.limit else State.OK,
            score=mean / settings.limit,
            evidence={"garbage_fraction": mean, "limit": settings.limit},
            message=f"{mean:.1%} of the responses are garbage (limit {settings.limit:.0%})",
        )
