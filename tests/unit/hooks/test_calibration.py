"""Calibrated bounds against exact quantiles of the samples they were learnt from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from trimtab.hooks.calibration import MAX_DISPLACEMENT, MIN_TAIL_TOKENS, ClipCalibration
from trimtab.hooks.calibration_sample import CalibrationSample
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.sketch import BINS, SUMS, SignSketch, Sketch, bin_index

CONTROLS = Controls()
LOW, HIGH = math.log1p(-0.2), math.log1p(0.2)
TOKENS = 40_000


def sampled(update: Sketch, shadow: Sketch) -> CalibrationSample:
    return CalibrationSample.of_sketches(update, shadow)


def sketched(negative: NDArray[np.float64], positive: NDArray[np.float64]) -> Sketch:
    def part(values: NDArray[np.float64]) -> SignSketch:
        counts = np.bincount(bin_index(values.astype(np.float32)), minlength=BINS).astype(np.float64)
        [made] = SignSketch.rows(counts[None], np.zeros((1, len(SUMS))))
        return made

    return Sketch(negative=part(negative), positive=part(positive))


@pytest.fixture(params=range(3))
def ratios(request: pytest.FixtureRequest) -> tuple[NDArray[np.float64], ...]:
    """Log-ratios of the low-precision path and of the twin; negative-advantage tokens spread far more."""
    rng = np.random.default_rng(request.param)
    twin_negative = rng.laplace(-0.01, 0.07, TOKENS)
    twin_positive = rng.laplace(0.01, 0.05, TOKENS)
    noisy_negative = twin_negative + 0.4 * rng.standard_t(4, TOKENS) * rng.random(TOKENS)
    noisy_positive = twin_positive + 0.1 * rng.standard_normal(TOKENS)
    return noisy_negative, noisy_positive, twin_negative, twin_positive


def test_calibrated_bounds_clip_what_the_twin_clips(ratios: tuple[NDArray[np.float64], ...]) -> None:
    noisy_negative, noisy_positive, twin_negative, twin_positive = ratios
    calibration = ClipCalibration().observed(
        sampled(sketched(noisy_negative, noisy_positive), sketched(twin_negative, twin_positive))
    )
    bounds = calibration.bounds(CONTROLS)
    target_low, target_high = np.mean(twin_negative < LOW), np.mean(twin_positive > HIGH)
    assert np.mean(noisy_negative < LOW) > 3 * target_low
    assert np.mean(noisy_negative < bounds.low) == pytest.approx(target_low, rel=0.15)
    assert np.mean(noisy_positive > bounds.high) == pytest.approx(target_high, rel=0.15)


def test_comparing_quantiles_at_level_eps_and_shifting_the_ratio_misses_the_target(
    ratios: tuple[NDArray[np.float64], ...],
) -> None:
    """The tempting reading, ratio - (Q_eps(ratio) - Q_eps(twin)) over all tokens, leaves most of the excess."""
    noisy_negative, noisy_positive, twin_negative, twin_positive = ratios
    noisy, twin = np.concatenate([noisy_negative, noisy_positive]), np.concatenate([twin_negative, twin_positive])
    shift = np.quantile(np.exp(noisy), CONTROLS.clip_low) - np.quantile(np.exp(twin), CONTROLS.clip_low)
    target = np.mean(twin_negative < LOW)
    excess = np.mean(noisy_negative < LOW) - target
    remaining = np.mean(np.exp(noisy_negative) - shift < 0.8) - target
    assert remaining > 0.5 * excess


def test_nothing_is_displaced_where_both_ratios_agree(ratios: tuple[NDArray[np.float64], ...]) -> None:
    _, _, negative, positive = ratios
    same = sketched(negative, positive)
    calibration = ClipCalibration().observed(sampled(same, same))
    assert calibration.bounds(CONTROLS) == ClipBounds(low=LOW, high=HIGH)


def test_bounds_never_tighten() -> None:
    rng = np.random.default_rng(7)
    wide, narrow = rng.normal(0, 0.5, TOKENS), rng.normal(0, 0.05, TOKENS)
    calibration = ClipCalibration().observed(sampled(sketched(narrow, narrow), sketched(wide, wide)))
    assert calibration.bounds(CONTROLS) == ClipBounds(low=LOW, high=HIGH)


def test_displacement_is_capped() -> None:
    rng = np.random.default_rng(8)
    noisy, twin = rng.normal(0, 6.0, TOKENS), rng.normal(0, 0.1, TOKENS)
    bounds = ClipCalibration().observed(sampled(sketched(noisy, noisy), sketched(twin, twin))).bounds(CONTROLS)
    assert bounds == ClipBounds(low=LOW - MAX_DISPLACEMENT, high=HIGH + MAX_DISPLACEMENT)


def test_too_few_tokens_of_a_sign_say_nothing() -> None:
    rng = np.random.default_rng(9)
    few, many = rng.normal(0, 3.0, 2 * MIN_TAIL_TOKENS - 1), rng.normal(0, 3.0, TOKENS)
    twin = rng.normal(0, 0.1, TOKENS)
    calibration = ClipCalibration().observed(sampled(sketched(few, many), sketched(twin, twin)))
    assert calibration.bounds(CONTROLS).low == LOW
    assert calibration.bounds(CONTROLS).high > HIGH


def test_a_few_steps_of_few_tokens_agree_with_one_step_of_many() -> None:
    """The tail of one small step has no quantile; that of the steps together has."""
    rng = np.random.default_rng(11)
    noisy, twin = rng.normal(0, 0.5, TOKENS), rng.normal(0, 0.12, TOKENS)
    whole = ClipCalibration().observed(sampled(sketched(noisy, noisy), sketched(twin, twin))).bounds(CONTROLS)
    calibration = ClipCalibration()
    for some, its_twin in zip(np.split(noisy, 40), np.split(twin, 40), strict=True):
        calibration = calibration.observed(sampled(sketched(some, some), sketched(its_twin, its_twin)))
    pieces = calibration.bounds(CONTROLS)
    assert pieces.low == pytest.approx(whole.low, abs=0.1)
    assert pieces.high == pytest.approx(whole.high, abs=0.1)


def test_older_steps_weigh_less() -> None:
    rng = np.random.default_rng(12)
    twin = rng.normal(0, 0.1, 4000)
    calibration = ClipCalibration()
    for scale in [0.8] * 5 + [0.1] * 400:
        noisy = rng.normal(0, scale, 4000)
        calibration = calibration.observed(sampled(sketched(noisy, noisy), sketched(twin, twin)))
    assert calibration.bounds(CONTROLS).low == pytest.approx(LOW, abs=0.02)


def test_a_lower_width_of_one_never_clips() -> None:
    controls = Controls(clip_low=1.0)
    assert ClipBounds.nominal(controls).low == -math.inf
    rng = np.random.default_rng(10)
    values = sketched(rng.normal(0, 1, TOKENS), rng.normal(0, 1, TOKENS))
    assert ClipCalibration().observed(sampled(values, values)).bounds(controls).low == -math.inf
