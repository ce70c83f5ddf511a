"""One signal's memory in one attempt of a run: its latest values, its highest level, its baseline."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from trimtab.agent.baselines import Baseline, BaselineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What has been seen of one signal."""

    recent: tuple[float, ...] = ()
    """The latest observed values, oldest first, non-finite ones included; at most one window."""
    age: int = 0
    """Steps since the latest value; 0 when this step has one."""
    peak: float | None = None
    """Highest mean of a full window so far."""
    baseline: Baseline = field(default_factory=Baseline)
    """Learnt up to the step before, so that a step is never compared with itself."""

    def seen(self, value: float | None, window: int) -> Track:
        """The track after one more step, its baseline untouched."""
        if value is None:
            return Track(recent=self.recent, age=self.age + 1, peak=self.peak, baseline=self.baseline)
        recent = (*self.recent, value)[-window:]
        mean = sum(recent) / window
        higher = len(recent) == window and isfinite(mean) and (self.peak is None or mean > self.peak)
        return Track(recent=recent, peak=mean if higher else self.peak, baseline=self.baseline)

    def learnt(self, settings: BaselineSettings) -> Track:
        """The track with this step's value, if there is one, in its baseline."""
        if self.age or not self.recent:
            return self
        baseline = self.baseline.updated(self.recent[-1], settings)
        return Track(recent=self.recent, age=self.age, peak=self.peak, baseline=baseline)
