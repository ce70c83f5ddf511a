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
from trimtab.agent.signals.step import Distribution
from trimtab.agent.signals.units import UNITS, Unit
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.records import MEAN_LEVELS, RATIO_CAPS, Bucket, NonFinite, SequenceTotals, StepSummary

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
        ("chi2_token", np.exp(2 * ALL).mean() - 1),
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


@pytest.mark.parametrize("q", [0.01, 0.05, 0.5, 0.95, 0.99])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("update_{}_negative", NEGATIVE),
        ("update_{}_positive", POSITIVE),
        ("mismatch_{}_negative", MISMATCH[0]),
        ("mismatch_{}_positive", MISMATCH[1]),
    ],
)
def test_quantiles_are_within_a_bin(name: str, values: NDArray[np.float32], q: float) -> None:
    expected = float(np.quantile(values, q, method="inverted_cdf"))
    assert SIGNALS[name.format(f"q{100 * q:02.0f}")](SUMMARY) == pytest.approx(expected, abs=near_bin(expected))


@pytest.mark.parametrize(("n", "q", "read"), [(5000, "q001", True), (4999, "q001", False), (500, "q99", True)])
def test_a_quantile_needs_five_tokens_beyond_it(n: int, q: str, read: bool) -> None:
    values = np.random.default_rng(n).normal(0, 1, n)
    found = SIGNALS[f"update_{q}_negative"](step_summary(0, update=(values, POSITIVE)))
    assert (found is not None) is read
    if found is not None:
        expected = float(np.quantile(values, {"q001": 0.001, "q99": 0.99}[q], method="inverted_cdf"))
        assert found == pytest.approx(expected, abs=near_bin(expected))


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=200), x=st.floats(-50, 50))
def test_the_fraction_below_is_that_of_the_sketch(values: list[float], x: float) -> None:
    tokens = sign_sketch(values)
    for bound in (x, math.inf, -math.inf, 0.0):
        assert Distribution(tokens).fraction_below(bound) == pytest.approx(tokens.fraction_below(bound), abs=1e-12)


def weighed(negative: float, positive: float) -> StepSummary:
    """`SUMMARY` with these mean |advantages|."""
    return replace(
        SUMMARY,
        negative=replace(SUMMARY.negative, tokens=3000, advantage_abs=3000 * negative),
        positive=replace(SUMMARY.positive, tokens=2000, advantage_abs=2000 * positive),
    )


def test_the_skew_is_that_of_the_advantages_times_the_ratio_less_one() -> None:
    gain = ((np.exp(POSITIVE.astype(np.float64)) - 1) * 1.5).mean()
    loss = ((1 - np.exp(NEGATIVE.astype(np.float64))) * 0.5).mean()
    mean = (3000 * 0.5 + 2000 * 1.5) / 5000
    assert SIGNALS["skew"](weighed(0.5, 1.5)) == pytest.approx((gain - loss) / mean, rel=1e-6)
    assert SIGNALS["skew"](SUMMARY) is None


def test_the_lost_penalty_is_the_silenced_share_of_all_advantage() -> None:
    lost = 0.5 * (np.log(0.7) > NEGATIVE).sum() / (3000 * 0.5 + 2000 * 1.5)
    assert SIGNALS["lost_penalty"](weighed(0.5, 1.5)) == pytest.approx(lost, abs=0.002)
    assert SIGNALS["lost_penalty"](SUMMARY) is None


def test_what_masking_retains_is_read_from_the_mismatch_unless_it_is_reported() -> None:
    masked = replace(SUMMARY, applied=Controls(importance="mis", importance_low=0.5, importance_high=2.0))
    kept = ((np.log(0.5) <= ALL) & (np.log(2.0) >= ALL)).mean()
    assert SIGNALS["retained_fraction"](masked) == pytest.approx(kept, abs=0.005)
    reported = replace(masked, scalars={"retained_fraction": 0.25})
    assert SIGNALS["retained_fraction"](reported) == 0.25
    for other in (SUMMARY, replace(masked, applied=replace(masked.applied, importance_level="geometric"))):
        assert SIGNALS["retained_fraction"](other) is None


def test_whole_responses() -> None:
    d = np.random.default_rng(8).normal(-0.1, 0.6, 64)
    ratio, means = np.exp(d), np.abs(d) / 10
    totals = SequenceTotals(
        sequences=70,
        missing=6,
        observed=64,
        ratio=float(ratio.sum()),
        ratio_sq=float((ratio**2).sum()),
        ratio_above=tuple(int((ratio > cap).sum()) for cap in RATIO_CAPS),
        mean_above=tuple(int((means > level).sum()) for level in MEAN_LEVELS),
    )
    summary = replace(SUMMARY, sequences=totals)
    assert SIGNALS["chi2_sequence"](summary) == pytest.approx((ratio**2).mean() - 1)
    assert SIGNALS["ess_sequence"](summary) == pytest.approx(ratio.mean() ** 2 / (ratio**2).mean())
    assert SIGNALS["mismatch_largest_sequence"](summary) == max(x for x in MEAN_LEVELS if x < means.max())
    for name in ("chi2_sequence", "ess_sequence", "mismatch_largest_sequence"):
        assert SIGNALS[name](replace(SUMMARY, sequences=SequenceTotals(sequences=3, missing=3))) is None


def test_the_first_position_and_the_worst_length() -> None:
    def bucket(first: int, last: int | None, mean: float, tokens: int = 64) -> Bucket:
        return Bucket(first=first, last=last, tokens=tokens, total=-mean * tokens, absolute=mean * tokens)

    summary = replace(
        SUMMARY,
        by_position=(bucket(0, 0, 6.0), bucket(1, 3, 3.0)),
        by_length=(bucket(1, 3, 0.005), bucket(256, 1023, 0.08), bucket(1024, None, 0.5, tokens=29)),
    )
    assert SIGNALS["mismatch_first_position"](summary) == pytest.approx(6.0)
    assert SIGNALS["mismatch_worst_length"](summary) == pytest.approx(0.08)
    few = replace(summary, by_position=(bucket(0, 0, 6.0, tokens=29),), by_length=())
    assert SIGNALS["mismatch_first_position"](few) is None
    assert SIGNALS["mismatch_worst_length"](few) is None


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
        scalars={"loss": math.inf, "grad_norm": math.nan, "update_norm": 1.0, "reward_mean": math.nan},
        nonfinite={"advantages": NonFinite(posinf=2, neginf=1, masked=50)},
    )
    assert SIGNALS["nonfinite"](summary) == 5


def test_entropy_weighs_tokens_not_signs() -> None:
    summary = StepSummary(job="run", attempt=1, step=0, negative=totals(300, 0.2), positive=totals(100, 1.0))
    assert SIGNALS["entropy"](summary) == pytest.approx(0.4)


def test_every_signal_says_what_it_is() -> None:
    assert [name for name, read in SIGNALS.items() if not (read.__doc__ or "").strip()] == []


def test_every_signal_has_a_unit() -> None:
    assert UNITS.keys() == SIGNALS.keys()
    assert {name for name, unit in UNITS.items() if unit is Unit.RATIO} >= {
        name for name in SIGNALS if "_fraction" in name
    }
