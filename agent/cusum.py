"""Two one-sided cumulative sums of a standardised signal.

    up   <- clip(up   + min(z, cut) - k, 0, 2h)
    down <- clip(down - max(z, -cut) - k, 0, 2h)          alarm when a sum exceeds h          (Page 1954)

With k = 1 and h = 20 a shift of 4 sd alarms in 7 steps, one of 8 sd or more in 3, and white noise practically never:
even if the anchor is off by half a sd the excursion probability is about exp(-2 (k - 0.5) h) = 2e-9 a step. k = 0.5,
h = 5 would alarm about every 458 steps on white noise. `cut` = 8 keeps one wild batch from alarming alone; the
ceiling 2h lets a sum come down again.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.agent.checks import MOST, require
from trimtab.agent.values import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class CusumSettings:
    """All in standard deviations."""

    k: float = 1.0
    """Distance that is forgiven every step."""
    h: float = 20.0
    """Sum at which it alarms."""
    cut: float = 8.0
    """Most that one step can add, before `k`."""

    def check(self, path: str) -> None:
        """Raise `ConfigError` where a field cannot be; whoever has these settings knows their `path`."""
        require(self.k > 0, f"{path}.k", self.k, "above 0")
        require(0 < self.h <= MOST, f"{path}.h", self.h, f"in (0, {MOST}]")
        need = f"above k = {self.k:g} and at most h = {self.h:g}"
        require(self.k < self.cut <= self.h, f"{path}.cut", self.cut, need)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Cusum:
    """The two sums."""

    up: float = 0.0
    down: float = 0.0

    def updated(self, z: float, settings: CusumSettings) -> Cusum:
        """The sums after one more standardised value."""
        step = min(max(z, -settings.cut), settings.cut)
        ceiling = 2 * settings.h
        return Cusum(
            up=min(max(self.up + step - settings.k, 0.0), ceiling),
            down=min(max(self.down - step - settings.k, 0.0), ceiling),
        )
