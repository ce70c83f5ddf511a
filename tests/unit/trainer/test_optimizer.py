"""AdamW and SGD on float32 and bfloat16 weights."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from trimtab.trainer.optimizer import (
    BFloat16AdamW,
    BFloat16SGD,
    OptimizerName,
    adamw,
    optimizer_named,
    sgd,
    stochastically_rounded,
)


def adamw_by_hand(weight: float, gradients: list[float], lr: float) -> list[float]:
    mean = square = 0.0
    weights = []
    for step, gradient in enumerate(gradients, start=1):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weight -= lr * (mean / (1 - 0.9**step)) / (math.sqrt(square / (1 - 0.999**step)) + 1e-8)
        weights.append(weight)
    return weights


def test_float32_weights_get_torchs_own() -> None:
    assert type(adamw([nn.Parameter(torch.ones(3))], 1e-3)) is torch.optim.AdamW
    assert type(sgd([nn.Parameter(torch.ones(3))], 1e-3)) is torch.optim.SGD


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_the_name_chooses_and_the_lr_is_that_of_the_moment(name: OptimizerName) -> None:
    weights = torch.randn(5, generator=torch.Generator().manual_seed(1))
    parameter = nn.Parameter(weights.clone())
    optimizer = optimizer_named(name, iter([parameter]), 0.5)
    expected = weights.tolist()
    gradients = torch.randn(4, 5, generator=torch.Generator().manual_seed(2))
    for step, gradient in enumerate(gradients):
        lr = 0.5 / 2**step
        for group in optimizer.param_groups:
            group["lr"] = lr
        parameter.grad = gradient.clone()
        optimizer.step()
        expected = [weight - lr * float(g) for weight, g in zip(expected, gradient, strict=True)]
    if name == "sgd":  # nothing but the gradient: no momentum, no decay
        assert parameter.tolist() == pytest.approx(expected, rel=1e-5)
    else:
        by_hand = []
        for start, column in zip(weights.tolist(), gradients.t().tolist(), strict=True):
            steps = [start, *adamw_by_hand(start, column, 1.0)]
            by_hand.append(
                start + sum(0.5 / 2**i * (after - before) for i, (before, after) in enumerate(pairwise(steps)))
            )
        assert parameter.tolist() == pytest.approx(by_hand, rel=1e-5)


def test_sgd_on_bfloat16_weights_is_right_on_average_where_each_update_is_below_the_spacing() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.ones(20_000, dtype=torch.bfloat16))
    optimizer = sgd([weight], 1e-3)
    assert isinstance(optimizer, BFloat16SGD)
    for _ in range(100):
        weight.grad = torch.full_like(weight, 0.03125)
        optimizer.step()
    assert weight.float().mean().item() == pytest.approx(1.0 - 100 * 1e-3 * 0.03125, abs=2e-4)
    assert optimizer.state_dict()["state"] == {}


def test_a_bfloat16_weight_follows_the_formula_to_its_own_rounding() -> None:
    generator = torch.Generator().manual_seed(3)
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.bfloat16))
    optimizer = adamw([weight], 0.125)
    gradients = torch.randn(20, generator=generator).to(torch.bfloat16).tolist()
    # In steps of an eighth around 1 the rounding of one update is at most 1/128, and each starts from the rounded one.
    for gradient in gradients:
        before = weight.item()
        weight.grad = torch.tensor([gradient], dtype=torch.bfloat16)
        state = optimizer.state[weight]
        step = int(state.get("step", 0)) + 1
        mean = 0.9 * float(state.get("mean", 0.0)) + 0.1 * gradient
        square = 0.999 * float(state.get("square", 0.0)) + 0.001 * gradient**2
        optimizer.step()
        expected = before - 0.125 * (mean / (1 - 0.9**step)) / (math.sqrt(square / (1 - 0.999**step)) + 1e-8)
        assert abs(weight.item() - expected) <= max(abs(expected), abs(before)) / 128
    assert optimizer.state[weight]["mean"].dtype == torch.float32


def test_updates_far_below_the_weights_spacing_add_up() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.ones(20_000, dtype=torch.bfloat16))
    optimizer = adamw([weight], 1e-5)
    for _ in range(100):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    expected = adamw_by_hand(1.0, [1.0] * 100, 1e-5)[-1]
    assert weight.float().mean().item() == pytest.approx(expected, abs=5e-5)
    assert weight.float().mean().item() < 0.9995


def test_rounding_is_right_on_average_and_only_to_neighbours() -> None:
    torch.manual_seed(1)
    x = torch.full((200_000,), 1.0 + 0.3 / 128)
    rounded = stochastically_rounded(x, torch.bfloat16).float()
    assert set(rounded.tolist()) == {1.0, 1.0 + 1 / 128}
    assert rounded.mean().item() == pytest.approx(x[0].item(), abs=4 * math.sqrt(0.21 / 200_000) / 128)


def test_what_bfloat16_holds_and_what_is_not_finite_stays() -> None:
    x = torch.tensor([0.0, -1.5, math.inf, -math.inf, math.nan])
    rounded = stochastically_rounded(x, torch.bfloat16).float()
    assert rounded[:4].tolist() == [0.0, -1.5, math.inf, -math.inf]
    assert math.isnan(rounded[4].item())


def test_a_saved_state_goes_on_to_the_bit() -> None:
    def run(optimizer: torch.optim.Optimizer, weight: nn.Parameter, steps: range) -> None:
        for step in steps:
            torch.manual_seed(step)
            weight.grad = torch.randn(8, dtype=torch.bfloat16)
            optimizer.step()

    whole = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    run(adamw([whole], 0.01), whole, range(10))
    first = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    optimizer = adamw([first], 0.01)
    run(optimizer, first, range(5))
    second = nn.Parameter(first.detach().clone())
    resumed = adamw([second], 0.01)
    resumed.load_state_dict(optimizer.state_dict())
    assert isinstance(resumed, BFloat16AdamW)
    run(resumed, second, range(5, 10))
    assert torch.equal(whole, second)
