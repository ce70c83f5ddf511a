"""Importance rules against plain arithmetic on the ratio, and at the extremes."""

from __future__ import annotations

import math

import pytest
import torch

from trimtab.hooks.controls import Controls
from trimtab.hooks.importance import importance_rule, masked, ppo_shaped, truncated, unweighted

RATIOS = torch.tensor([0.01, 0.4, 0.5000001, 0.9, 1.0, 1.9, 1.999999, 2.1, 50.0], dtype=torch.float64)


def test_truncated_is_the_smaller_of_ratio_and_cap() -> None:
    expected = [min(float(r), 2.0) for r in RATIOS]
    torch.testing.assert_close(truncated(2.0)(RATIOS.log()), torch.tensor(expected, dtype=torch.float64))


def test_masked_keeps_the_ratio_inside_the_band_and_drops_it_outside() -> None:
    expected = [float(r) if 0.5 <= r <= 2.0 else 0.0 for r in RATIOS]
    torch.testing.assert_close(masked(0.5, 2.0)(RATIOS.log()), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("advantage", "keeps"), [(1.0, lambda r: r <= 1.2), (-1.0, lambda r: r >= 0.8)])
def test_ppo_shaped_keeps_what_is_not_clipped_for_the_sign(advantage: float, keeps) -> None:  # type: ignore[no-untyped-def]
    rule = ppo_shaped(math.log(0.8), math.log(1.2), torch.full_like(RATIOS, advantage))
    expected = [float(r) if keeps(float(r)) else 0.0 for r in RATIOS]
    torch.testing.assert_close(rule(RATIOS.log()), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    "rule", [unweighted, truncated(2.0), truncated(math.inf), masked(0.5, 2.0), masked(0.0, math.inf)]
)
def test_no_log_ratio_becomes_inf_or_nan(rule) -> None:  # type: ignore[no-untyped-def]
    extremes = torch.tensor([-700.0, -89.0, 89.0, 700.0, math.inf, -math.inf])
    assert torch.isfinite(rule(extremes)).all()


@pytest.mark.parametrize(
    ("controls", "expected"),
    [
        (Controls(), [1.0, 1.0, 1.0]),
        (Controls(importance="tis", importance_high=3.0), [0.1, 1.0, 3.0]),
        (Controls(importance="mis", importance_low=0.2, importance_high=3.0), [0.0, 1.0, 0.0]),
    ],
)
def test_controls_name_the_rule(controls: Controls, expected: list[float]) -> None:
    log_ratio = torch.tensor([0.1, 1.0, 10.0]).log()
    torch.testing.assert_close(importance_rule(controls)(log_ratio), torch.tensor(expected))
