"""What is foreseen of a remedy, against sums over the tokens themselves."""

import numpy as np
import pytest
from agent_runs import step_summary

from trimtab.agent.foresight import foreseen, too_much
from trimtab.hooks.controls import Controls

RNG = np.random.default_rng(3)
NEGATIVE, POSITIVE = RNG.normal(-0.3, 0.6, 4000), RNG.normal(0.1, 0.5, 4000)
TWIN = RNG.normal(-0.05, 0.2, 4000), RNG.normal(0.02, 0.1, 4000)
STEP = step_summary(
    0,
    update=(NEGATIVE, POSITIVE),
    mismatch=(NEGATIVE, POSITIVE),
    shadow=TWIN,
    scalars={"centering_size": 0.2, "head_tv": 0.04},
)
ALL = np.exp(np.concatenate([NEGATIVE, POSITIVE]))


def test_truncation_says_what_it_cuts_off() -> None:
    expected = foreseen({"ratio_reference": "recomputed", "importance": "tis"}, STEP)
    weights = np.minimum(ALL, 2.0)
    assert expected["truncated"] == pytest.approx((ALL > 2).mean(), abs=0.01)
    assert expected["weight_ess"] == pytest.approx(weights.mean() ** 2 / (weights**2).mean(), rel=0.01)
    assert "retained" not in expected


def test_masking_says_what_it_leaves() -> None:
    overrides = {"ratio_reference": "recomputed", "importance": "mis", "importance_low": 0.5}
    expected = foreseen(overrides, STEP)
    kept = (ALL >= 0.5) & (ALL <= 2)
    assert expected["retained"] == pytest.approx(kept.mean(), abs=0.01)
    weights = np.where(kept, ALL, 0)
    assert expected["weight_ess"] == pytest.approx(weights.mean() ** 2 / (weights**2).mean(), rel=0.02)


def test_masking_that_leaves_less_than_half_is_too_much() -> None:
    overrides = {"ratio_reference": "recomputed", "importance": "mis", "importance_low": 1.0, "importance_high": 1.1}
    expected = foreseen(overrides, STEP)
    kept = ((ALL >= 1) & (ALL <= 1.1)).mean()
    assert too_much(expected) == f"importance: it would leave {kept:.0%} of the tokens, below 50%"


def test_a_recomputed_ratio_is_clipped_as_the_twins() -> None:
    expected = foreseen({"ratio_reference": "recomputed"}, STEP)
    low, high = np.log(0.8), np.log(1.2)
    assert expected["clip_fraction_negative_now"] == pytest.approx((low > NEGATIVE).mean(), abs=0.01)
    assert expected["clip_fraction_negative_then"] == pytest.approx((TWIN[0] < low).mean(), abs=0.01)
    assert expected["clip_fraction_positive_then"] == pytest.approx((TWIN[1] > high).mean(), abs=0.01)


def test_calibrated_bounds_clip_what_the_twin_clips() -> None:
    expected = foreseen({"clip_mode": "calibrated"}, STEP)
    assert expected["clip_fraction_negative_then"] == pytest.approx((TWIN[0] < np.log(0.8)).mean(), abs=0.03)
    assert expected["clip_fraction_negative_then"] < expected["clip_fraction_negative_now"]


def test_centering_is_as_large_as_the_trainer_reports() -> None:
    expected = foreseen({"centering": True}, STEP)
    assert (expected["centering_size"], expected["head_tv"]) == (0.2, 0.04)


def test_nothing_is_foreseen_of_what_was_not_measured() -> None:
    bare = step_summary(0, applied=Controls(ratio_reference="sampler"))
    overrides = {"ratio_reference": "recomputed", "importance": "tis", "centering": True, "clip_mode": "calibrated"}
    assert foreseen(overrides, bare) == {}
    assert too_much({}) is None
    assert foreseen({"lr_scale": 0.5}, bare) == {"lr_scale_now": 1.0, "lr_scale_then": 0.5}
