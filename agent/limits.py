"""How far the agent may move a run's controls: a user's, for each job, and stronger than any remedy."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from trimtab.agent.checks import MOST, require
from trimtab.agent.remedy import Refusal
from trimtab.hooks.controls import CONTROL_NAMES, Controls, ControlValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Of one numeric control."""

    low: float
    high: float
    move: float
    """Largest change at once, as a share of the value in effect."""

    def __post_init__(self) -> None:
        require(0 <= self.low <= MOST, "low", self.low, f"0 to {MOST}")
        require(self.low <= self.high <= MOST, "high", self.high, f"{self.low:g} to {MOST}")
        require(0 < self.move <= MOST, "move", self.move, f"above 0, to {MOST}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of every numeric control that a remedy sets, and what none may set.

    >>> Limits().bounded({"lr_scale": 0.1}, Controls())
    {'lr_scale': 0.5}
    """

    lr_scale: Limit = field(default_factory=lambda: Limit(low=0.1, high=1.0, move=0.5))
    max_staleness: Limit = field(default_factory=lambda: Limit(low=0.0, high=MOST, move=MOST))
    bf16_last: Limit = field(default_factory=lambda: Limit(low=0.0, high=0.5, move=MOST))
    untouched: tuple[str, ...] = ()
    """Controls that the agent never sets."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.untouched) - set(CONTROL_NAMES))
        require(not unknown, "policy.limits.untouched", self.untouched, "names of controls")

    def bounded(self, overrides: dict[str, ControlValue], applied: Controls) -> dict[str, ControlValue] | Refusal:
        """`overrides` within the limits; refused where one may not be set, or may not move at all."""
        allowed = dict(overrides)
        for name, value in overrides.items():
            if name in self.untouched:
                return Refusal(reason=f"{name}: the job's settings keep the agent's hands off it")
            if name in BOUNDED:
                allowed[name] = _within(getattr(self, name), float(value), float(getattr(applied, name)))
                if allowed[name] == getattr(applied, name):
                    return Refusal(reason=f"{name}: {allowed[name]:g} is at the limit of the job's settings")
        return allowed


BOUNDED = tuple(each.name for each in fields(Limits) if each.name != "untouched")


def _within(limit: Limit, value: float, now: float) -> float:
    most = limit.move * abs(now)
    nearest = min(max(value, now - most), now + most)
    return min(max(nearest, limit.low), limit.high)
