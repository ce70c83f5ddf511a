"""A resumed run is not what it was.

In the first `watch` steps of an attempt that is not the first, WARN: sd(d) above 3 times the highest average that the
attempts before had, and 6 of its sd above it; or the reward below half of their lowest average, and 6 sd below that.
With d = trainer log-prob - sampler log-prob. Compared is what a run was like at its worst, so that going back to an
early checkpoint is no alarm. In the grace after a resume the alarm is a transient (`trimtab.agent.resume`), and
afterwards it stands.

Expected false alarms: none seen; six robust sd and a factor are asked for. Source: THUDM/slime#1695.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State

DISTANCE = 6.0
"""In sd of the level before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeSettings:
    """Limits of the comparison."""

    watch: int = 30
    """Steps of an attempt that are compared with those before."""
    mismatch_factor: float = 3.0
    """On the spread of the mismatch."""
    reward_share: float = 0.5
    """Of the reward."""

    def __post_init__(self) -> None:
        require(0 <= self.watch <= MOST, "detectors.resume.watch", self.watch, f"0 to {MOST}")
        name = "detectors.resume.mismatch_factor"
        require(1 < self.mismatch_factor <= MOST, name, self.mismatch_factor, f"in (1, {MOST}]")
        require(0 < self.reward_share < 1, "detectors.resume.reward_share", self.reward_share, "between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Remembers nothing."""

    ROLE: ClassVar[Role] = Role.EARLY
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    def update(self, settings: ResumeSettings, reading: Reading) -> tuple[Resume, Finding]:
        """See the module."""
        if not reading.past:
            return self, Finding(state=State.NOT_OBSERVED, message="nothing is known of an attempt before this one")
        if reading.steps > settings.watch:
            return self, Finding(state=State.OK, message=f"the resume was {reading.steps} steps ago")
        values = {name: reading.value(name) for name in reading.past}
        if all(value is None for value in values.values()) or reading.broken(*values.values()):
            message = "neither mismatch nor reward, or one that is not finite"
            return self, Finding(state=State.INCONCLUSIVE, message=message)
        told: list[str] = []
        evidence: dict[str, float] = {}
        for name, value in values.items():
            level = reading.past[name]
            if value is None:
                continue
            evidence |= {name: value, f"{name}_before": level.location}
            wider = name == "mismatch_std" and value > settings.mismatch_factor * level.location
            lower = name == "reward_mean" and value < settings.reward_share * level.location
            if (wider or lower) and abs(level.distance(value)) > DISTANCE:
                told.append(f"{name} {value:.3g}, at worst {level.location:.3g} before the resume")
        return self, Finding(
            state=State.WARN if told else State.OK,
            score=float(len(told)),
            evidence=evidence,
            message="; ".join(told) or "as before the resume",
        )
