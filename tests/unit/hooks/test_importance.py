"""Importance rules against plain arithmetic on the ratio, and at the extremes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trimtab.hooks.controls import Controls
from trimtab.hooks.importance import (
    WeightRule,
    clamped,
    importance_rule,
    importance_weights,
    masked,
    ppo_shaped,
    truncated,
    unweighted,
)

RATIOS = torch.tensor([0.01, 0.4, 0.5000001, 0.9, 1.0, 1.9, 1.999999, 2.1, 50.0], dtype=torch.float64)


def of_each(ratio: Callable[[float], float]) -> Tensor:
    return torch.tensor([ratio(float(r)) for r in RATIOS], dtype=torch.float64)


def test_truncated_is_the_ratio_brought_between_the_bounds() -> None:
    torch.testing.assert_close(truncated(0.0, 2.0)(RATIOS.log()), of_each(lambda r: min(r, 2.0)))
    torch.testing.assert_close(truncated(0.5, 2.0)(RATIOS.log()), of_each(lambda r: min(max(r, 0.5), 2.0)))


def test_masked_keeps_the_ratio_or_one_inside_the_band_and_drops_it_outside() -> None:
    torch.testing.assert_close(masked(0.5, 2.0)(RATIOS.log()), of_each(lambda r: r if 0.5 <= r <= 2.0 else 0.0))
    assert torch.equal(masked(0.5, 2.0, "one")(RATIOS.log()), of_each(lambda r: float(0.5 <= r <= 2.0)))


@pytest.mark.parametrize(
    ("advantage", "keeps"),
    [(1.0, lambda r: r <= 1.2), (-1.0, lambda r: r >= 0.8)],
)
def test_ppo_shaped_keeps_what_is_not_clipped_for_the_sign(advantage: float, keeps: Callable[[float], bool]) -> None:
    rule = ppo_shaped(math.log(0.8), math.log(1.2), torch.full_like(RATIOS, advantage))
    torch.testing.assert_close(rule(RATIOS.log()), of_each(lambda r: r if keeps(r) else 0.0))


def test_dual_clip_drops_what_became_too_likely_where_the_advantage_is_negative() -> None:
    for advantage, keeps in ((1.0, lambda r: r <= 1.2), (-1.0, lambda r: 0.8 <= r <= 2.0)):
        rule = ppo_shaped(math.log(0.8), math.log(1.2), torch.full_like(RATIOS, advantage), math.log(2.0))
        torch.testing.assert_close(rule(RATIOS.log()), of_each(lambda r, keeps=keeps: r if keeps(r) else 0.0))


EXTREMES = torch.tensor([-700.0, -89.0, 89.0, 700.0, math.inf, -math.inf])


@pytest.mark.parametrize(
    "rule",
    [
        unweighted,
        clamped(-math.inf, math.inf),
        truncated(0.0, 2.0),
        truncated(0.0, math.inf),
        masked(0.5, 2.0),
        masked(0.0, math.inf),
        masked(0.0, math.inf, "one"),
        ppo_shaped(-math.inf, math.inf, torch.tensor(-1.0)),
    ],
)
def test_no_log_ratio_becomes_inf_or_nan(rule: WeightRule) -> None:
    assert torch.isfinite(rule(EXTREMES)).all()


def test_endless_bounds_that_keep_one_are_exactly_off() -> None:
    controls = Controls(importance="mis", importance_low=0.0, importance_high=math.inf, importance_inside="one")
    off = importance_rule(Controls())
    for log_ratios in (RATIOS.log(), EXTREMES):
        assert torch.equal(importance_rule(controls)(log_ratios), off(log_ratios))


@pytest.mark.parametrize(
    ("controls", "expected"),
    [
        (Controls(), [1.0, 1.0, 1.0]),
        (Controls(importance="tis", importance_high=3.0), [0.1, 1.0, 3.0]),
        (Controls(importance="tis", importance_low=0.5, importance_high=3.0), [0.5, 1.0, 3.0]),
        (Controls(importance="mis", importance_low=0.2, importance_high=3.0), [0.0, 1.0, 0.0]),
        (
            Controls(importance="mis", importance_low=0.05, importance_high=3.0, importance_inside="one"),
            [1.0, 1.0, 0.0],
        ),
    ],
)
def test_controls_name_the_rule(controls: Controls, expected: list[float]) -> None:
    log_ratio = torch.tensor([0.1, 1.0, 10.0]).log()
    torch.testing.assert_close(importance_rule(controls)(log_ratio), torch.tensor(expected))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("importance", ["tis", "mis"])
def test_a_level_weights_a_token_by_itself_or_by_its_sequence(importance: str, level: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_ratio = 0.5 * torch.randn(5, 7, generator=generator, dtype=torch.float64)
    mask = (torch.rand(5, 7, generator=generator) < 0.7).double()
    mask[4] = 0.0
    controls = Controls(importance=importance, importance_low=0.6, importance_high=1.8, importance_level=level)  # type: ignore[arg-type]
    weights = importance_weights(log_ratio.masked_fill(mask == 0, math.nan).requires_grad_(), mask, controls)
    assert weights.shape == (5, 7)
    assert not weights.requires_grad
    for row in range(5):
        live = [math.exp(x) for x, m in zip(log_ratio[row].tolist(), mask[row].tolist(), strict=True) if m]
        for column in range(7):
            if not mask[row, column]:
                continue
            ratio = math.prod(live)
            if level == "geometric":
                ratio **= 1 / len(live)
            if level == "token":
                ratio = math.exp(log_ratio[row, column])
            expected = min(max(ratio, 0.6), 1.8) if importance == "tis" else ratio * (0.6 <= ratio <= 1.8)
            assert weights[row, column].item() == pytest.approx(expected, rel=1e-12)


def test_a_sequence_that_drifted_far_is_bounded_before_the_exponential() -> None:
    far = torch.full((1, 4000), 3.0)
    for level in ("sequence", "geometric"):
        controls = Controls(importance="tis", importance_high=2.0, importance_level=level)  # type: ignore[arg-type]
        torch.testing.assert_close(importance_weights(far, torch.ones(1, 4000), controls), torch.full((1, 4000), 2.0))


@pytest.mark.parametrize("rule", [truncated, masked, clamped])
@pytest.mark.parametrize(("low", "high"), [(2.0, 0.5), (math.nan, 1.0), (0.5, math.nan)])
def test_a_band_the_wrong_way_round_is_refused(rule: Callable[[float, float], object], low: float, high: float) -> None:
    with pytest.raises(ValueError, match=r"low, high: .* is not at or below .*; give the band's lower bound first"):
        rule(low, high)
