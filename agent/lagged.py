"""What a signal was like a while ago: a baseline of its values of `delay` steps before.

    now       mean of a window's latest values
    then      Huber average of the values up to `delay` steps ago (`trimtab.agent.baselines`)

A running average follows a ramp, and after some tens of steps the distance to it no longer grows; an anchor from the
run's first steps does not follow, but knows nothing of what the run has honestly become. A delayed average stands where
the signal was before a ramp of less than `delay` steps began, and goes along with changes that take hundreds. Frozen
while its user alarms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from trimtab.agent.baselines import Baseline, BaselineSettings, Level
from trimtab.agent.values import quick

SETTINGS = BaselineSettings()


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Lagged:
    """A delayed baseline. Values that are not finite are passed over.

    >>> lagged = Lagged()
    >>> for step in range(75):
    ...     lagged = lagged.updated(float(step), delay=40)
    >>> lagged.then is not None, lagged.first.location
    (True, 14.5)
    """

    waiting: tuple[float, ...] = ()
    """The latest values, oldest first, not yet in the baseline."""
    baseline: Baseline = field(default_factory=Baseline)

    def updated(self, value: float | None, *, delay: int, frozen: bool = False) -> Lagged:
        """After one more step."""
        if value is None or not isfinite(value):
            return self
        waiting, baseline = (*self.waiting, value), self.baseline
        if len(waiting) > delay:
            baseline = baseline if frozen else baseline.updated(waiting[0], SETTINGS)
            waiting = waiting[1:]
        return Lagged(waiting=waiting, baseline=baseline)

    @property
    def then(self) -> Level | None:
        """Where the signal was; None until a baseline is learnt."""
        return self.baseline.average

    @property
    def first(self) -> Level | None:
        """Where it began; None until a baseline is learnt."""
        return self.baseline.anchor
