"""Calibrated clipping: move the clip *bounds* until the low-precision ratio clips what its BF16 twin would clip.

Let x be the log-ratio that the loss clips and y the same ratio with every engine replaced by BF16 at the same weight
versions (the twin, or shadow). Quantisation noise widens x, so that negative-advantage tokens fall below log(1 - eps)
and lose their penalty. For each sign of the advantage on its own, with its own tail mass (PPO clips A < 0 only below,
and A > 0 only above):

    p_low  = P(y < log(1 - eps_low)  | A < 0)        low  = log(1 - eps_low)  + Q_x(p_low)      - Q_y(p_low)
    p_high = P(y > log(1 + eps_high) | A > 0)        high = log(1 + eps_high) + Q_x(1 - p_high) - Q_y(1 - p_high)

Both distributions are those of the last steps, older tokens weighing less, because the clipped tail of one step is too
few tokens to have a quantile. The ratio, and so every gradient's weight, stays as it is: shifting the
ratio instead rescales all gradients and moves the mass near 1 out of the band. Comparing the quantiles at level eps
itself (0.2: the core of the noise, not the clipped tail) finds next to no displacement; a test keeps that reading from
coming back.

Guards. Bounds only widen, by at most `MAX_DISPLACEMENT`. The tail that is matched is never smaller than what ten tokens
make up, nor than `TAIL_MASS_FLOOR`, so that a twin that clips nothing still gives a quantile.

Source: the calibrated-clipping paper (arXiv 2609.22870, lower-bound alignment on A < 0, rebalanced upper bound), in the
quantile form, which is always feasible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.sketch import SignSketch, Sketch, fraction_below, quantile

MAX_DISPLACEMENT = 1.0
"""Nats. Must exceed the mismatch's standard deviation: 0.3 is too small at 0.5 and fails live, 1.0 works (measured)."""
TAIL_MASS_FLOOR = 1e-3
MIN_TAIL_TOKENS = 10
DECAY = 0.96
"""Weight of the past: an effective window of 25 steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentTokens:
    """A log-ratio's distribution over the last steps: weight by bin of `trimtab.hooks.sketch`."""

    weights: dict[int, float] = field(default_factory=dict)

    def joined(self, tokens: SignSketch) -> RecentTokens:
        """With one more step's tokens, the older ones weighing less."""
        weights = {index: DECAY * weight for index, weight in self.weights.items()}
        for index, count in zip(tokens.bins, tokens.counts, strict=True):
            weights[index] = weights.get(index, 0.0) + count
        return RecentTokens(weights=dict(sorted(weights.items())))

    @property
    def n(self) -> float:
        """Tokens, in weight."""
        return sum(self.weights.values())

    def quantile(self, level: float) -> float:
        """Log-ratio below which a share `level` lies, nats."""
        return quantile(list(self.weights), list(self.weights.values()), level)

    def fraction_below(self, x: float) -> float:
        """Share with log-ratio < x."""
        return fraction_below(list(self.weights), list(self.weights.values()), x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Displacement:
    """The ratio and its twin, for the tokens of one advantage sign."""

    update: RecentTokens = RecentTokens()
    shadow: RecentTokens = RecentTokens()

    def joined(self, update: SignSketch, shadow: SignSketch) -> Displacement:
        """With one more step's tokens."""
        return Displacement(update=self.update.joined(update), shadow=self.shadow.joined(shadow))

    def low(self, bound: float) -> float:
        """How far the quantile that the twin clips below `bound` lies below the twin's: 0 or less, nats."""
        floor = self._tail_floor()
        if floor is None or not math.isfinite(bound):
            return 0.0
        level = max(self.shadow.fraction_below(bound), floor)
        return max(min(self._at(level), 0.0), -MAX_DISPLACEMENT)

    def high(self, bound: float) -> float:
        """How far the quantile that the twin clips above `bound` lies above the twin's: 0 or more, nats."""
        floor = self._tail_floor()
        if floor is None:
            return 0.0
        level = 1.0 - max(1.0 - self.shadow.fraction_below(bound), floor)
        return min(max(self._at(level), 0.0), MAX_DISPLACEMENT)

    def _at(self, level: float) -> float:
        return self.update.quantile(level) - self.shadow.quantile(level)

    def _tail_floor(self) -> float | None:
        """Smallest tail that these tokens can tell; None where they cannot tell even half of themselves."""
        tokens = min(self.update.n, self.shadow.n)
        return max(TAIL_MASS_FLOOR, MIN_TAIL_TOKENS / tokens) if tokens >= 2 * MIN_TAIL_TOKENS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipCalibration:
    """How far each bound is displaced, learnt from steps whose twin was computed.

    >>> ClipCalibration().bounds(Controls()) == ClipBounds.nominal(Controls())
    True
    """

    negative: Displacement = Displacement()
    positive: Displacement = Displacement()

    def observed(self, update: Sketch, shadow: Sketch) -> ClipCalibration:
        """The calibration after one more step with both ratios, merged over the step's minibatches and ranks."""
        return ClipCalibration(
            negative=self.negative.joined(update.negative, shadow.negative),
            positive=self.positive.joined(update.positive, shadow.positive),
        )

    def bounds(self, controls: Controls) -> ClipBounds:
        """The bounds to clip by: nominal, widened by the displacement."""
        nominal = ClipBounds.nominal(controls)
        return ClipBounds(
            low=nominal.low + self.negative.low(nominal.low),
            high=nominal.high + self.positive.high(nominal.high),
        )
