"""Calibrated clipping: move the clip *bounds* until the low-precision ratio clips what its BF16 twin would clip.

Let x be the log-ratio that the loss clips and y the same ratio with every engine replaced by BF16 at the same weight
versions (the twin, or shadow). Quantisation noise widens x, so that negative-advantage tokens fall below log(1 - eps)
and lose their penalty. For each sign of the advantage on its own, with its own tail mass (PPO clips A < 0 only below,
and A > 0 only above), a token weighing what the loss makes it weigh:

    p_low  = P(y < log(1 - eps_low)  | A < 0)        low  = log(1 - eps_low)  + Q_x(p_low)      - Q_y(p_low)
    p_high = P(y > log(1 + eps_high) | A > 0)        high = log(1 + eps_high) + Q_x(1 - p_high) - Q_y(1 - p_high)

That is `clip_rebalance="quantile"`. With `"update_ratio"` the upper bound restores the twin's balance of what pushes
tokens up to what pushes them down instead, given the lower bound: with g the weight of a token in the loss,

    U(H; r) = sum of g A r over A > 0, log r <= H         D(L; r) = sum of g |A| r over A < 0, log r >= L
    high    = the least H with U(H; x) >= D(low; x) U(log(1 + eps_high); y) / D(log(1 - eps_low); y)

(with dual clip, D counts no token above it). No H may be enough; the quantile form takes over then, and for `cispo`,
where no clipped token loses its update. A sequence's ratio (`gspo`) is not what is measured here, and keeps the nominal
bounds.

Both distributions are those of the last steps, older tokens weighing less, because the clipped tail of one step is too
few tokens to have a quantile. The ratio, and so every gradient's weight, stays as it is: shifting the
ratio instead rescales all gradients and moves the mass near 1 out of the band. Comparing the quantiles at level eps
itself (0.2: the core of the noise, not the clipped tail) finds next to no displacement; a test keeps that reading from
coming back.

Guards. Bounds only widen, by at most `MAX_DISPLACEMENT`; an upper bound that restores a balance may tighten to half
its nominal width. The tail that is matched is never smaller than what ten tokens make up, nor than `TAIL_MASS_FLOOR`,
so that a twin that clips nothing still gives a quantile. How far bounds move from one calibration to the next is
limited by the memory of the distributions alone: a cap on the move itself (0.1 nats has been proposed) would need ten
calibrations to make up for noise of 1 nat, which ruins a run in about ten steps.

Source: the calibrated-clipping paper (arXiv 2609.22870), lower-bound alignment on A < 0 and rebalanced upper bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.calibration_sample import CalibrationSample
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.sketch import LOWER_EDGES, UPPER_EDGES, Sign, fraction_below, quantile
from trimtab.hooks.wire import decode_value

MAX_DISPLACEMENT = 1.0
"""Nats. Must exceed the mismatch's standard deviation: 0.3 is too small at 0.5 and fails live, 1.0 works (measured)."""
TAIL_MASS_FLOOR = 1e-3
MIN_TAIL_TOKENS = 10
DECAY = 0.96
"""Weight of the past, a step: an effective window of 25 steps, or of the last calibration where that is longer ago."""
_BALANCED = 1e-9
"""Relative rounding below which the nominal upper bound has the twin's balance already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentTokens:
    """A log-ratio's distribution over the last steps, by bin of `trimtab.hooks.sketch`, ascending."""

    weights: dict[int, float] = field(default_factory=dict)
    """Of the tokens in the loss."""
    updates: dict[int, float] = field(default_factory=dict)
    """Weight times |A| r."""
    tokens: float = 0.0
    """How many there are, the older ones counting less."""

    def joined(self, sums: NDArray[np.float64], decay: float) -> RecentTokens:
        """With one more sample's [sums, BINS], the older tokens weighing `decay` of what they did."""
        tokens, weights, updates = sums
        return RecentTokens(
            weights=_joined(self.weights, weights, decay),
            updates=_joined(self.updates, updates, decay),
            tokens=decay * self.tokens + float(tokens.sum()),
        )

    def quantile(self, level: float) -> float:
        """Log-ratio below which a share `level` of the weight lies, nats."""
        return quantile(list(self.weights), list(self.weights.values()), level)

    def fraction_below(self, x: float) -> float:
        """Share of the weight with log-ratio < x."""
        return fraction_below(list(self.weights), list(self.weights.values()), x)

    def update_below(self, x: float) -> float:
        """Update of the tokens with log-ratio < x."""
        if not self.updates:
            return 0.0
        return fraction_below(list(self.updates), list(self.updates.values()), x) * sum(self.updates.values())

    def where_update_is(self, update: float) -> float | None:
        """Least x with `update_below(x)` of at least `update`, nats; None where all tokens together make less."""
        below = 0.0
        for index, here in self.updates.items():
            if below + here >= update:
                low, high = float(LOWER_EDGES[index]), float(UPPER_EDGES[index])
                if math.isinf(low) or math.isinf(high):
                    return high if math.isinf(low) else low
                return low + (high - low) * max(update - below, 0.0) / here
            below += here
        return None


def _joined(past: dict[int, float], sums: NDArray[np.float64], decay: float) -> dict[int, float]:
    joined = {index: decay * value for index, value in past.items()}
    for index in np.flatnonzero(sums).tolist():
        joined[index] = joined.get(index, 0.0) + float(sums[index])
    return dict(sorted(joined.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Displacement:
    """The ratio and its twin, for the tokens of one advantage sign."""

    update: RecentTokens = RecentTokens()
    shadow: RecentTokens = RecentTokens()

    def joined(self, sample: CalibrationSample, sign: Sign, decay: float) -> Displacement:
        """With the tokens of one more sample."""
        return Displacement(
            update=self.update.joined(sample.of(sign, "update"), decay),
            shadow=self.shadow.joined(sample.of(sign, "shadow"), decay),
        )

    def low(self, bound: float) -> float:
        """How far the quantile that the twin clips below `bound` lies below the twin's: 0 or less, nats."""
        floor = self.tail_floor()
        if floor is None or not math.isfinite(bound):
            return 0.0
        level = max(self.shadow.fraction_below(bound), floor)
        return max(min(self._at(level), 0.0), -MAX_DISPLACEMENT)

    def high(self, bound: float) -> float:
        """How far the quantile that the twin clips above `bound` lies above the twin's: 0 or more, nats."""
        floor = self.tail_floor()
        if floor is None:
            return 0.0
        level = 1.0 - max(1.0 - self.shadow.fraction_below(bound), floor)
        return min(max(self._at(level), 0.0), MAX_DISPLACEMENT)

    def tail_floor(self) -> float | None:
        """Smallest tail that these tokens can tell; None where they cannot tell even half of themselves."""
        tokens = min(self.update.tokens, self.shadow.tokens)
        return max(TAIL_MASS_FLOOR, MIN_TAIL_TOKENS / tokens) if tokens >= 2 * MIN_TAIL_TOKENS else None

    def _at(self, level: float) -> float:
        return self.update.quantile(level) - self.shadow.quantile(level)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipCalibration:
    """How far each bound is displaced, learnt from steps whose twin was computed.

    Made of dataclasses, dicts and numbers alone: `dataclasses.asdict` saves it and `restored_calibration` restores it.

    >>> ClipCalibration().bounds(Controls()) == ClipBounds.nominal(Controls())
    True
    """

    negative: Displacement = Displacement()
    positive: Displacement = Displacement()

    def observed(self, sample: CalibrationSample, steps: int = 1) -> ClipCalibration:
        """The calibration after one more sample, merged over the minibatches and ranks of a step, `steps` steps after
        the last one."""
        decay = DECAY**steps
        return ClipCalibration(
            negative=self.negative.joined(sample, Sign.NEGATIVE, decay),
            positive=self.positive.joined(sample, Sign.POSITIVE, decay),
        )

    def bounds(self, controls: Controls) -> ClipBounds:
        """The bounds to clip by, whatever `controls.clip_mode` says."""
        nominal = ClipBounds.nominal(controls)
        if controls.objective == "gspo":
            return nominal
        low = nominal.low + self.negative.low(nominal.low)
        high = nominal.high + self.positive.high(nominal.high)
        if controls.clip_rebalance == "update_ratio" and controls.objective == "ppo":
            balanced = self._balanced(low, nominal, controls)
            high = high if balanced is None else balanced
        return ClipBounds(low=low, high=high)

    def _balanced(self, low: float, nominal: ClipBounds, controls: Controls) -> float | None:
        """The upper bound that restores the twin's ratio of updates, nats; None where none does, or tokens are few."""
        if self.negative.tail_floor() is None or self.positive.tail_floor() is None:
            return None
        most = math.log(controls.dual_clip)

        def pushed_down(tokens: RecentTokens, bound: float) -> float:
            return tokens.update_below(most) - tokens.update_below(bound)

        down = pushed_down(self.negative.shadow, nominal.low)
        if down <= 0:
            return None
        up = self.positive.shadow.update_below(nominal.high)
        wanted = up / down * pushed_down(self.negative.update, low)
        if math.isclose(wanted, self.positive.update.update_below(nominal.high), rel_tol=_BALANCED):
            return nominal.high
        found = self.positive.update.where_update_is(wanted)
        if found is None:
            return None
        return min(max(found, math.log1p(controls.clip_high / 2)), nominal.high + MAX_DISPLACEMENT)


def restored_calibration(saved: Any) -> ClipCalibration:
    """The calibration that `dataclasses.asdict` made `saved` of.

    Raises:
        WireError: it is not one; the message names the field.
    """
    return decode_value(ClipCalibration, saved)
