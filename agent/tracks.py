"""One signal's memory in one attempt of a run: its latest values, its highest level, its baselines.

Where a step is one of several updates on the same rollouts, ratios start at 1 on each new buffer and spread with every
pass, so clip fractions and spreads go up and down like a saw. Two things follow. A window spans whole cycles of passes,
the fewest that hold a window's steps, so that its mean does not depend on where in a cycle it ends. And each pass has a
baseline of its own, for the signals that `trimtab.agent.regime` names; passes from the 16th on share the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from trimtab.agent.baselines import Baseline, BaselineSettings
from trimtab.agent.values import maker, quick, replace

MAX_PASSES = 16
"""Passes over one buffer that are told apart."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What has been seen of one signal."""

    recent: tuple[float, ...] = ()
    """The latest observed values, oldest first, non-finite ones included; at most one window."""
    age: int = 0
    """Steps since the latest value; 0 when this step has one."""
    peak: float | None = None
    """Highest mean of a full window so far."""
    cycle: int = 1
    """Passes over a buffer, as far as it has values of them: 1 for what is measured once a generation."""
    gap: int = 1
    """Steps from the value before the latest to the latest: a reward comes once a generation, whatever a step is."""
    baseline: Baseline = field(default_factory=Baseline)
    """Of the first pass. Learnt up to the step before, so that a step is never compared with itself."""
    later: tuple[Baseline, ...] = ()
    """Of the second pass, the third, and so on."""

    def seen(self, value: float | None, window: int, pass_index: int = 0) -> Track:
        """The track after one more step, its baselines untouched."""
        if value is None and not self.recent:
            return self
        if value is None:
            return self._with(self.recent, self.age + 1, self.peak, self.cycle, self.gap)
        cycle = max(self.cycle, min(pass_index + 1, MAX_PASSES)) if pass_index else self.cycle
        gap = self.age + 1 if self.recent else 1
        length = span(window, cycle)
        recent = (*self.recent, value)[-length:]
        peak = self.peak
        if len(recent) == length:
            mean = sum(recent) / length
            peak = mean if isfinite(mean) and (peak is None or mean > peak) else peak
        return self._with(recent, 0, peak, cycle, gap)

    def _with(self, recent: tuple[float, ...], age: int, peak: float | None, cycle: int, gap: int) -> Track:
        return _track(recent=recent, age=age, peak=peak, cycle=cycle, gap=gap, baseline=self.baseline, later=self.later)

    def is_full(self, window: int) -> bool:
        """Whether it holds a full window."""
        return len(self.recent) >= span(window, self.cycle)

    def mean(self, window: int) -> float | None:
        """Mean of the latest full window; None while it fills. Not finite when a value in it is not."""
        return sum(self.recent) / len(self.recent) if self.is_full(window) else None

    def of_pass(self, pass_index: int) -> Baseline:
        """The baseline of one pass."""
        if not pass_index:
            return self.baseline
        place = min(pass_index, MAX_PASSES - 1)
        return self.later[place - 1] if place <= len(self.later) else Baseline()

    def learnt(self, settings: BaselineSettings, pass_index: int = 0) -> Track:
        """The track with this step's value, if there is one, in the baseline of its pass."""
        if self.age or not self.recent:
            return self
        baseline = self.of_pass(pass_index).updated(self.recent[-1], settings)
        place = min(pass_index, MAX_PASSES - 1)
        if place == 0:
            return _track(
                recent=self.recent,
                age=self.age,
                peak=self.peak,
                cycle=self.cycle,
                gap=self.gap,
                baseline=baseline,
                later=self.later,
            )
        later = [*self.later, *[Baseline()] * (place - len(self.later))]
        later[place - 1] = baseline
        return replace(self, later=tuple(later))

    def forgotten(self) -> Track:
        """The track with its baselines not yet learnt."""
        return replace(self, baseline=Baseline(), later=())


_track = maker(Track)


def span(window: int, cycle: int) -> int:
    """Steps of a window: the fewest whole cycles of `cycle` passes that hold `window` steps."""
    return -(-window // cycle) * cycle
