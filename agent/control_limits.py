"""How far the agent may move a run's controls: a user's, for each job, and stronger than any remedy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from trimtab.agent.checks import MOST, require
from trimtab.agent.remedy import Refusal
from trimtab.hooks.controls import CONTROL_NAMES, Controls, ControlValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLimit:
    """Of one numeric control; checked by `ControlLimits`, which knows its name."""

    low: float
    high: float
    move: float
    """Largest change at once, as a share of the value in effect; of a value of 0 there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLimits:
    """Of every numeric control that a remedy sets, and what none may set.

    >>> ControlLimits().bounded({"lr_scale": 0.1}, Controls())
    {'lr_scale': 0.5}
    """

    lr_scale: ControlLimit = field(default_factory=lambda: ControlLimit(low=0.1, high=1.0, move=0.5))
    max_staleness: ControlLimit = field(default_factory=lambda: ControlLimit(low=0.0, high=MOST, move=MOST))
    bf16_last: ControlLimit = field(default_factory=lambda: ControlLimit(low=0.0, high=0.5, move=MOST))
    untouched: tuple[str, ...] = ()
    """Controls that the agent never sets."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.untouched) - set(CONTROL_NAMES))
        require(not unknown, "policy.limits.untouched", self.untouched, "names of controls")
        for name in BOUNDED:
            limit, path = getattr(self, name), f"policy.limits.{name}"
            require(0 <= limit.low <= MOST, f"{path}.low", limit.low, f"0 to {MOST}")
            require(limit.low <= limit.high <= MOST, f"{path}.high", limit.high, f"{limit.low:g} to {MOST}")
            require(0 < limit.move <= MOST, f"{path}.move", limit.move, f"above 0, to {MOST}")

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


BOUNDED = tuple(each.name for each in fields(ControlLimits) if each.name != "untouched")


def _within(limit: ControlLimit, value: float, now: float) -> float:
    """The value nearest to `value` that the limit allows; what a run has set beyond it is not pulled back."""
    low, high = min(limit.low, now), max(limit.high, now)
    if now and math.isfinite(now):
        most = limit.move * abs(now)
        low, high = max(low, now - most), min(high, now + most)
    return min(max(value, low), high)
