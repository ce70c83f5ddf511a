"""Calibration from a loss's own tensors against sorting the raw tokens: weights, both rebalancings, and fallbacks."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimtab.hooks.calibration import DECAY, MAX_DISPLACEMENT, ClipCalibration, RecentTokens, restored_calibration
from trimtab.hooks.calibration_sample import CalibrationSample
from trimtab.hooks.calibration_torch import calibration_sums
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.sketch import BINS, LOWER_EDGES, UPPER_EDGES, bin_index
from trimtab.hooks.wire import WireError

ROWS, COLUMNS = 400, 60
LOW, HIGH = math.log1p(-0.2), math.log1p(0.2)
RATIO = Controls(clip_rebalance="update_ratio")


@dataclass
class Tokens:
    """[ROWS, COLUMNS] of what the loss saw, and the twin."""

    log_ratio: Tensor
    shadow: Tensor
    advantages: Tensor
    weights: Tensor

    def calibration(self, parts: int = 1) -> ClipCalibration:
        every = [getattr(self, field.name).chunk(parts) for field in dataclasses.fields(self)]
        sums = sum(calibration_sums(*part) for part in zip(*every, strict=True))
        assert isinstance(sums, Tensor)
        return ClipCalibration().observed(CalibrationSample.of_cells(sums.numpy()))

    def raw(self, positive: bool, shadow: bool = False) -> tuple[NDArray[np.float64], ...]:
        """Log-ratio, weight and update of each live token of one sign, by ascending log-ratio."""
        x = (self.shadow if shadow else self.log_ratio).numpy()
        keep = (self.weights.numpy() > 0) & ((self.advantages.numpy() > 0) == positive)
        x, g, a = x[keep], self.weights.numpy()[keep], np.abs(self.advantages.numpy()[keep])
        order = np.argsort(x)
        return x[order], g[order], (g * a * np.exp(x))[order]


def made(seed: int, noise_negative: float = 0.4, noise_positive: float = 0.15) -> Tokens:
    """Heavier noise where the advantage is negative, advantages and weights that go with the ratio, and a mask."""
    rng = np.random.default_rng(seed)
    advantages = rng.normal(0, 1, (ROWS, 1)).repeat(COLUMNS, 1)
    shadow = rng.laplace(0.02 * np.sign(advantages), 0.08)
    noise = np.where(advantages < 0, noise_negative, noise_positive) * rng.standard_t(5, shadow.shape)
    log_ratio = shadow + noise * rng.random(shadow.shape)
    weights = np.exp(0.5 * rng.normal(0, 1, shadow.shape) - log_ratio) / 100
    weights *= rng.random(shadow.shape) < 0.8
    return Tokens(*(torch.from_numpy(values) for values in (log_ratio, shadow, advantages, weights)))


def weighted_quantile(x: NDArray[np.float64], weights: NDArray[np.float64], level: float) -> float:
    """The least x that a share `level` of the weight lies at or below; x ascends."""
    cumulative = np.cumsum(weights)
    return float(x[np.searchsorted(cumulative, level * cumulative[-1])])


def close(value: float) -> float:
    """What two quantiles near `value` may differ from their sketch's by, twice over for the share's own bin."""
    return 4 * max(1e-4, 0.02 * abs(value))


@pytest.mark.parametrize("seed", range(4))
def test_quantile_bounds_are_those_of_the_sorted_tokens_by_weight(seed: int) -> None:
    tokens = made(seed)
    bounds = tokens.calibration().bounds(Controls())
    for positive, nominal, bound in ((False, LOW, bounds.low), (True, HIGH, bounds.high)):
        x, g, _ = tokens.raw(positive)
        y, h, _ = tokens.raw(positive, shadow=True)
        level = h[y < nominal].sum() / h.sum()
        assert (1 - level if positive else level) > 1e-3
        expected = nominal + weighted_quantile(x, g, level) - weighted_quantile(y, h, level)
        assert abs(expected - nominal) > 0.03
        assert bound == pytest.approx(expected, abs=close(expected))
        # Unweighted, the quantiles lie elsewhere, so the weights do count.
        plain = nominal + float(np.quantile(x, (y < nominal).mean())) - float(np.quantile(y, (y < nominal).mean()))
        assert abs(plain - expected) > 0.003


@pytest.mark.parametrize("dual_clip", [math.inf, 1.5])
@pytest.mark.parametrize("seed", range(4))
def test_a_rebalanced_upper_bound_is_that_of_the_sorted_tokens(seed: int, dual_clip: float) -> None:
    tokens = made(seed)
    controls = dataclasses.replace(RATIO, dual_clip=dual_clip)
    bounds = tokens.calibration().bounds(controls)
    assert bounds.low == tokens.calibration().bounds(Controls()).low

    def down(shadow: bool, low: float) -> float:
        x, _, update = tokens.raw(False, shadow)
        return float(update[(x >= low) & (x <= math.log(dual_clip))].sum())

    y, _, twin = tokens.raw(True, shadow=True)
    x, _, update = tokens.raw(True)
    wanted = twin[y <= HIGH].sum() / down(True, LOW) * down(False, bounds.low)
    assert wanted < update.sum()
    expected = float(x[np.searchsorted(np.cumsum(update), wanted)])
    assert math.log1p(0.1) < expected < HIGH + MAX_DISPLACEMENT
    assert bounds.high == pytest.approx(expected, abs=close(expected))
    restored = update[x <= bounds.high].sum() / down(False, bounds.low)
    assert restored == pytest.approx(twin[y <= HIGH].sum() / down(True, LOW), rel=5e-3)


def test_where_no_upper_bound_is_enough_the_quantile_takes_over() -> None:
    tokens = made(11)
    # The twin pushed up with ten times the weight that there is.
    sums = calibration_sums(*(getattr(tokens, field.name) for field in dataclasses.fields(tokens)))
    sums[1, 1, 2] *= 10
    calibration = ClipCalibration().observed(CalibrationSample.of_cells(sums.numpy()))
    assert calibration.bounds(RATIO) == calibration.bounds(Controls())
    assert calibration.bounds(RATIO).high != HIGH


def test_a_rebalanced_upper_bound_tightens_to_half_its_width_at_most_and_widens_by_the_cap() -> None:
    tokens = made(12, noise_positive=0.6)
    for factor, expected in ((0.01, math.log1p(0.1)), (None, HIGH + MAX_DISPLACEMENT)):
        sums = calibration_sums(*(getattr(tokens, field.name) for field in dataclasses.fields(tokens)))
        if factor is None:
            # Just short of everything that was ever pushed up.
            calibration = ClipCalibration().observed(CalibrationSample.of_cells(sums.numpy()))
            down = calibration.negative
            low = calibration.bounds(RATIO).low
            now = down.update.update_below(math.inf) - down.update.update_below(low)
            twin = down.shadow.update_below(math.inf) - down.shadow.update_below(LOW)
            most = sum(calibration.positive.update.updates.values())
            factor = most * twin / now / calibration.positive.shadow.update_below(HIGH) * (1 - 1e-7)
        sums[1, 1, 2] *= factor
        calibration = ClipCalibration().observed(CalibrationSample.of_cells(sums.numpy()))
        assert calibration.bounds(RATIO).high == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rebalance", ["quantile", "update_ratio"])
def test_equal_ratios_leave_the_nominal_bounds(rebalance: str) -> None:
    tokens = made(13)
    same = dataclasses.replace(tokens, shadow=tokens.log_ratio)
    bounds = same.calibration().bounds(Controls(clip_rebalance=rebalance))  # type: ignore[arg-type]
    assert bounds == ClipBounds(low=LOW, high=HIGH)


@pytest.mark.parametrize("rebalance", ["quantile", "update_ratio"])
def test_nothing_is_displaced_before_there_are_tokens_of_a_sign(rebalance: str) -> None:
    controls = Controls(clip_rebalance=rebalance)  # type: ignore[arg-type]
    tokens = made(14)
    assert ClipCalibration().bounds(controls) == ClipBounds(low=LOW, high=HIGH)
    negative = dataclasses.replace(tokens, advantages=-tokens.advantages.abs())
    bounds = negative.calibration().bounds(controls)
    assert bounds.low < LOW
    assert bounds.high == HIGH


def test_sums_of_minibatches_add_up_to_those_of_the_batch() -> None:
    tokens = made(15)
    whole, parts = tokens.calibration(), tokens.calibration(parts=5)
    for sign in ("negative", "positive"):
        for ratio in ("update", "shadow"):
            one, other = (getattr(getattr(each, sign), ratio) for each in (whole, parts))
            assert one.tokens == other.tokens
            for name in ("weights", "updates"):
                assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-12)


def test_sums_are_those_of_a_loop_over_tokens() -> None:
    tokens = made(16)
    sample = tokens.calibration()
    for sign, positive in (("negative", False), ("positive", True)):
        for ratio, shadow in (("update", False), ("shadow", True)):
            recent = getattr(getattr(sample, sign), ratio)
            x, g, update = tokens.raw(positive, shadow)
            weights, updates = np.zeros(BINS), np.zeros(BINS)
            for index, one, other in zip(bin_index(x.astype(np.float32)), g, update, strict=True):
                weights[index] += one
                updates[index] += other
            assert recent.tokens == len(x)
            assert recent.weights == pytest.approx({i: w for i, w in enumerate(weights) if w}, rel=1e-9)
            assert recent.updates == pytest.approx({i: w for i, w in enumerate(updates) if w}, rel=1e-9)


@pytest.mark.parametrize("extreme", [math.nan, math.inf, -math.inf])
def test_a_token_without_weight_may_hold_anything_and_one_that_is_not_finite_is_left_out_of_both(
    extreme: float,
) -> None:
    tokens = made(17)
    dead = tokens.weights == 0
    assert dead.any()
    spoilt = Tokens(
        log_ratio=tokens.log_ratio.masked_fill(dead, extreme),
        shadow=tokens.shadow.masked_fill(dead, extreme),
        advantages=tokens.advantages.masked_fill(dead, extreme),
        weights=tokens.weights,
    )
    assert spoilt.calibration() == tokens.calibration()
    without = dataclasses.replace(tokens, weights=tokens.weights.clone())
    without.weights[:, 3] = 0.0
    broken = dataclasses.replace(tokens, shadow=tokens.shadow.clone())
    broken.shadow[:, 3] = extreme
    assert broken.calibration() == without.calibration()


def test_an_advantage_may_be_one_a_sequence() -> None:
    tokens = made(18)
    per_sequence = dataclasses.replace(tokens, advantages=tokens.advantages[:, :1])
    assert per_sequence.calibration() == tokens.calibration()


def test_the_past_fades_with_the_steps_since() -> None:
    tokens = made(19)
    sums = calibration_sums(*(getattr(tokens, field.name) for field in dataclasses.fields(tokens)))
    sample = CalibrationSample.of_cells(sums.numpy())
    once = ClipCalibration().observed(sample)
    again = once.observed(sample, steps=20)
    assert again.negative.update.tokens == pytest.approx((1 + DECAY**20) * once.negative.update.tokens)
    for index, weight in once.positive.shadow.updates.items():
        assert again.positive.shadow.updates[index] == pytest.approx((1 + DECAY**20) * weight)


def test_the_place_of_an_update_is_the_inverse_of_the_update_below() -> None:
    bins = {5: 1.0, 600: 2.0, 700: 0.5}
    recent = RecentTokens(weights=bins, updates=bins, tokens=3.0)
    for update in (1.0 + 1e-9, 1.7, 3.0, 3.1, 3.5):
        place = recent.where_update_is(update)
        assert place is not None
        assert recent.update_below(place) == pytest.approx(update)
    assert recent.where_update_is(3.6) is None
    first = RecentTokens(weights={0: 1.0}, updates={0: 1.0}, tokens=1.0).where_update_is(0.5)
    last = RecentTokens(weights={BINS - 1: 1.0}, updates={BINS - 1: 1.0}, tokens=1.0).where_update_is(0.5)
    assert (first, last) == (UPPER_EDGES[0], LOWER_EDGES[-1])


def test_only_ppo_is_rebalanced_and_a_sequence_ratio_keeps_its_bounds() -> None:
    calibration = made(20).calibration()
    chosen: dict[str, Any] = {"clip_rebalance": "update_ratio"}
    assert calibration.bounds(Controls(objective="cispo", **chosen)) == calibration.bounds(Controls())
    assert calibration.bounds(Controls(**chosen)) != calibration.bounds(Controls())
    sequences = Controls(objective="gspo", clip_low=3e-4, clip_high=4e-4)
    assert calibration.bounds(sequences) == ClipBounds.nominal(sequences)


def test_a_calibration_is_restored_from_what_it_is_saved_as() -> None:
    calibration = made(21).calibration()
    assert restored_calibration(dataclasses.asdict(calibration)) == calibration
    with pytest.raises(WireError, match=r"ClipCalibration\.negative: 3 is not an object"):
        restored_calibration({"negative": 3})
