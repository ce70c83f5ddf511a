"""Calibrated clipping: move the clip *bounds* until the low-precision ratio clips what its BF16 twin would clip.

Let x be the log-ratio that the loss clips and y the same ratio with every engine replaced by BF16 at the same weight
versions (the twin, or shadow). Quantisation noise widens x, so that negative-advantage tokens fall below log(1 - eps)
and lose their penalty. For each sign of the advantage on its own, with its own tail mass (PPO clips A < 0 only below,
and A > 0 only above):

    p_low  = P(y < log(1 - eps_low)  | A < 0)        low  = log(1 - eps_low)  + E[Q_x(p_low)      - Q_y(p_low)]
    p_high = P(y > log(1 + eps_high) | A > 0)        high = log(1 + eps_high) + E[Q_x(1 - p_high) - Q_y(1 - p_high)]

E is a bias-corrected moving average over steps. The ratio, and so every gradient's weight, stays as it is: shifting the
ratio instead rescales all gradients and moves the mass near 1 out of the band. Comparing the quantiles at level eps
itself (0.2: the core of the noise, not the clipped tail) finds next to no displacement; a test keeps that reading from
coming back.

Guards. Bounds only widen, by at most `MAX_DISPLACEMENT`; tail masses are floored, so an unclipped twin still gives a
quantile; a sign with too few tokens says nothing that step.

Source: the calibrated-clipping paper (arXiv 2609.22870, lower-bound alignment on A < 0, rebalanced upper bound), in the
quantile form, which is always feasible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.sketch import SignSketch, Sketch

MAX_DISPLACEMENT = 1.0
"""Nats. Must exceed the mismatch's standard deviation: 0.3 is too small at 0.5 and fails live, 1.0 works (measured)."""
TAIL_MASS_FLOOR = 1e-3
MIN_TOKENS = 32
DECAY = 0.96
"""Weight of the past: an effective window of 25 steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingAverage:
    """Exponential moving average that starts unbiased: the mean so far, not a mean with an imagined zero."""

    total: float = 0.0
    weight: float = 0.0

    def updated(self, value: float) -> MovingAverage:
        """The average with one more value."""
        return MovingAverage(total=DECAY * self.total + value, weight=DECAY * self.weight + 1.0)

    @property
    def value(self) -> float:
        """The average; 0 before the first value."""
        return self.total / self.weight if self.weight else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipCalibration:
    """How far each bound is displaced, learnt from steps whose twin was computed.

    >>> ClipCalibration().bounds(Controls()) == ClipBounds.nominal(Controls())
    True
    """

    low: MovingAverage = MovingAverage()
    high: MovingAverage = MovingAverage()

    def observed(self, update: Sketch, shadow: Sketch, controls: Controls) -> ClipCalibration:
        """The calibration after one more step with both ratios, merged over the step's minibatches and ranks."""
        nominal = ClipBounds.nominal(controls)
        after = self
        if _enough(update.negative, shadow.negative) and math.isfinite(nominal.low):
            level = max(shadow.negative.fraction_below(nominal.low), TAIL_MASS_FLOOR)
            after = replace(after, low=after.low.updated(_displacement(update.negative, shadow.negative, level)))
        if _enough(update.positive, shadow.positive):
            level = 1.0 - max(1.0 - shadow.positive.fraction_below(nominal.high), TAIL_MASS_FLOOR)
            after = replace(after, high=after.high.updated(_displacement(update.positive, shadow.positive, level)))
        return after

    def bounds(self, controls: Controls) -> ClipBounds:
        """The bounds to clip by: nominal, widened by the learnt displacement."""
        nominal = ClipBounds.nominal(controls)
        return ClipBounds(
            low=nominal.low + max(min(self.low.value, 0.0), -MAX_DISPLACEMENT),
            high=nominal.high + min(max(self.high.value, 0.0), MAX_DISPLACEMENT),
        )


def _enough(update: SignSketch, shadow: SignSketch) -> bool:
    return min(update.n, shadow.n) >= MIN_TOKENS


def _displacement(update: SignSketch, shadow: SignSketch, level: float) -> float:
    return update.quantile(level) - shadow.quantile(level)
