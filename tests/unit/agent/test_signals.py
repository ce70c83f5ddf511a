"""Every signal against its definition, computed from the tokens themselves with numpy."""

import math
from dataclasses import replace

import numpy as np
import pytest
from agent_runs import sign_sketch, step_summary, totals
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from trimtab.agent.signals import MIN_TOKENS, SIGNALS, quantile, read_all
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.records import NonFinite, StepSummary

RNG = np.random.default_rng(7)
NEGATIVE, POSITIVE = RNG.normal(-0.2, 0.4, 3000).astype(np.float32), RNG.normal(0.05, 0.2, 2000).astype(np.float32)
TWIN = RNG.normal(-0.05, 0.3, 3000).astype(np.float32), RNG.normal(0.01, 0.1, 2000).astype(np.float32)
MISMATCH = RNG.normal(-0.1, 0.5, 3000).astype(np.float32), RNG.standard_t(3, 2000).astype(np.float32) / 4
ALL = np.concatenate(MISMATCH).astype(np.float64)
SUMMARY = step_summary(
    3,
    update=(NEGATIVE, POSITIVE),
    shadow=TWIN,
    mismatch=MISMATCH,
    applied=Controls(clip_low=0.3, clip_high=0.1),
    entropy=0.5,
    tokens=5000,
    scalars={"reward_mean": 0.4, "grad_norm": 2.0, "garbage_fraction": 0.01, "length_mean": 9.0},
)


def near_bin(x: float) -> float:
    """What a sketch promises of a quantile interpolated in its bin: the width of the bin."""
    return max(1e-4, abs(x) / 32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mismatch_std", ALL.std()),
        ("mismatch_mean", ALL.mean()),
        ("mismatch_kl", (np.exp(ALL) - 1 - ALL).mean()),
        ("ess", np.exp(ALL).mean() ** 2 / np.exp(2 * ALL).mean()),
        ("update_std", np.concatenate([NEGATIVE, POSITIVE]).astype(np.float64).std()),
        ("asymmetry_mean", NEGATIVE.mean(dtype=np.float64) - POSITIVE.mean(dtype=np.float64)),
        ("entropy", 0.5),
        ("entropy_negative", 0.5),
        ("entropy_positive", 0.5),
        ("reward_mean", 0.4),
        ("grad_norm", 2.0),
        ("garbage_fraction", 0.01),
        ("length_mean", 9.0),
        ("tokens", 5000),
        ("nonfinite", 0),
    ],
)
def test_sums_are_exact(name: str, expected: float) -> None:
    assert SIGNALS[name](SUMMARY) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "values", "q"),
    [
        ("update_q05_negative", NEGATIVE, 0.05),
        ("update_q05_positive", POSITIVE, 0.05),
        ("update_q95_negative", NEGATIVE, 0.95),
        ("update_q95_positive", POSITIVE, 0.95),
    ],
)
def test_quantiles_are_within_a_bin(name: str, values: NDArray[np.float32], q: float) -> None:
    expected = float(np.quantile(values, q))
    assert SIGNALS[name](SUMMARY) == pytest.approx(expected, abs=near_bin(expected))


def test_clip_fractions_count_only_the_side_that_clips() -> None:
    above, below = (np.log1p(0.1) < POSITIVE).mean(), (np.log(0.7) > NEGATIVE).mean()
    assert SIGNALS["clip_fraction_positive"](SUMMARY) == pytest.approx(above, abs=0.003)
    assert SIGNALS["clip_fraction_negative"](SUMMARY) == pytest.approx(below, abs=0.003)


def test_clip_fractions_are_of_the_bounds_in_effect() -> None:
    moved = replace(SUMMARY, clip_bounds=ClipBounds(low=-0.9, high=0.4))
    assert SIGNALS["clip_fraction_positive"](moved) == pytest.approx((POSITIVE > 0.4).mean(), abs=0.003)
    assert SIGNALS["clip_fraction_negative"](moved) == pytest.approx((NEGATIVE < -0.9).mean(), abs=0.003)


@pytest.mark.parametrize("bounds", [None, ClipBounds(low=-0.9, high=0.4)])
def test_the_escape_is_what_is_silenced_beyond_the_twin_under_nominal_bounds(bounds: ClipBounds | None) -> None:
    nominal = np.log(0.7)
    low = nominal if bounds is None else bounds.low
    expected = (low > NEGATIVE).mean() - (nominal > TWIN[0]).mean()
    assert SIGNALS["escape_excess"](replace(SUMMARY, clip_bounds=bounds)) == pytest.approx(expected, abs=0.005)
    assert SIGNALS["escape_excess"](step_summary(0, update=(NEGATIVE, POSITIVE))) is None


def test_a_lower_bound_of_zero_clips_no_negative_token() -> None:
    summary = step_summary(0, update=(NEGATIVE, POSITIVE), applied=Controls(clip_low=1.0))
    assert SIGNALS["clip_fraction_negative"](summary) == 0.0


def test_the_gap_is_the_asymmetry_less_that_of_the_twin() -> None:
    def asymmetry(negative: NDArray[np.float32], positive: NDArray[np.float32]) -> float:
        return float(np.quantile(negative, 0.05) - np.quantile(positive, 0.05))

    own, twin = asymmetry(NEGATIVE, POSITIVE), asymmetry(*TWIN)
    assert SIGNALS["asymmetry"](SUMMARY) == pytest.approx(own, abs=0.05)
    assert SIGNALS["asymmetry_gap"](SUMMARY) == pytest.approx(own - twin, abs=0.08)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=200),
    q=st.sampled_from([0.01, 0.05, 0.5, 0.95, 1]),
)
def test_the_interpolated_quantile_lies_in_the_bin_of_the_exact_one(values: list[float], q: float) -> None:
    exact = sorted(values)[max(math.ceil(q * len(values)), 1) - 1]
    found = quantile(sign_sketch(values), q)
    bounded = math.copysign(min(abs(exact), 32.0), exact)
    assert found == pytest.approx(bounded, abs=max(2 * 2.0**-14, abs(bounded) / 30))


def test_nothing_reported_is_not_observed() -> None:
    signals = read_all(StepSummary(job="run", attempt=1, step=0))
    assert {name for name, value in signals.items() if value is not None} == {"nonfinite", "tokens"}


def test_too_few_tokens_of_a_sign_are_not_judged() -> None:
    few = step_summary(0, update=(NEGATIVE[: MIN_TOKENS - 1], POSITIVE), mismatch=(NEGATIVE[:40], POSITIVE[:50]))
    for name in ("asymmetry", "asymmetry_mean", "clip_fraction_negative", "update_q05_negative", "mismatch_std", "ess"):
        assert SIGNALS[name](few) is None
    assert SIGNALS["clip_fraction_positive"](few) is not None


def test_an_entropy_of_which_nothing_is_finite_is_nan_not_missing() -> None:
    summary = step_summary(0, tokens=400, nonfinite={"entropy": NonFinite(nan=400)})
    assert math.isnan(SIGNALS["entropy"](summary))  # type: ignore[arg-type]
    assert SIGNALS["nonfinite"](summary) == 400


def test_non_finite_scalars_count_and_masked_values_do_not() -> None:
    summary = step_summary(
        0,
        scalars={"loss": math.inf, "grad_norm": math.nan, "reward_mean": math.nan},
        nonfinite={"advantages": NonFinite(posinf=2, neginf=1, masked=50)},
    )
    assert SIGNALS["nonfinite"](summary) == 5


def test_entropy_weighs_tokens_not_signs() -> None:
    summary = StepSummary(job="run", attempt=1, step=0, negative=totals(300, 0.2), positive=totals(100, 1.0))
    assert SIGNALS["entropy"](summary) == pytest.approx(0.4)


def test_every_signal_says_what_it_is() -> None:
    assert [name for name, read in SIGNALS.items() if not (read.__doc__ or "").strip()] == []
