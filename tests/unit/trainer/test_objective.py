"""The loss against explicit loops over tokens, and its gradient against PPO's textbook cases."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.trainer.objective import (
    ADVANTAGE_FLOOR,
    LossInputs,
    clipped_objective,
    group_advantages,
    policy_loss,
    token_mean,
)

NOMINAL = ClipBounds.nominal(Controls())


def inputs(seed: int, vocabulary: int = 7, head: int = 4) -> LossInputs:
    generator = torch.Generator().manual_seed(seed)

    def logprobs() -> Tensor:
        return torch.log_softmax(torch.randn(3, 5, vocabulary, generator=generator, dtype=torch.float64), -1)

    train, old, rollout = logprobs().requires_grad_(), logprobs(), logprobs()
    tokens = torch.randint(0, vocabulary, (3, 5, 1), generator=generator)
    top = rollout.topk(head, -1)
    return LossInputs(
        train_logprobs=train.gather(2, tokens)[..., 0],
        old_logprobs=old.gather(2, tokens)[..., 0],
        rollout_logprobs=rollout.gather(2, tokens)[..., 0],
        advantages=torch.tensor([[1.3], [-0.7], [0.0]], dtype=torch.float64),
        mask=(torch.rand(3, 5, generator=generator) < 0.8).double(),
        train_head_logprobs=train.gather(2, top.indices),
        sampler_head_logprobs=top.values,
    )


@pytest.mark.parametrize("reference", ["sampler", "recomputed"])
@pytest.mark.parametrize("importance", ["none", "tis", "mis"])
@pytest.mark.parametrize("seed", range(3))
def test_loss_equals_a_loop_over_tokens(reference: str, importance: str, seed: int) -> None:
    batch = inputs(seed)
    controls = Controls(ratio_reference=reference, importance=importance)  # type: ignore[arg-type]
    total, count = 0.0, 0
    for row in range(3):
        for column in range(5):
            if not batch.mask[row, column]:
                continue
            advantage = float(batch.advantages[row, 0])
            train, old, rollout = (
                float(values[row, column].detach())
                for values in (batch.train_logprobs, batch.old_logprobs, batch.rollout_logprobs)
            )
            ratio = math.exp(train - (rollout if reference == "sampler" else old))
            objective = min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
            mismatch = math.exp(old - rollout)
            if reference == "recomputed" and importance == "tis":
                objective *= min(mismatch, 2.0)
            if reference == "recomputed" and importance == "mis":
                objective *= mismatch if 0.5 <= mismatch <= 2.0 else 0.0
            total, count = total - objective, count + 1
    assert policy_loss(batch, controls, NOMINAL).item() == pytest.approx(total / count, rel=1e-9)


@pytest.mark.parametrize(
    ("ratio", "advantage", "flows"),
    [(1.3, 1.0, False), (1.3, -1.0, True), (0.7, 1.0, True), (0.7, -1.0, False), (1.0, 1.0, True), (1.0, -1.0, True)],
)
def test_gradient_flows_exactly_where_ppo_does_not_clip(ratio: float, advantage: float, flows: bool) -> None:
    log_ratio = torch.tensor(math.log(ratio), requires_grad=True)
    clipped_objective(log_ratio, torch.tensor(advantage), NOMINAL).backward()
    assert log_ratio.grad is not None
    assert log_ratio.grad.item() == pytest.approx(ratio * advantage if flows else 0.0)


def test_centering_adds_the_advantage_times_the_term() -> None:
    batch = inputs(11)
    controls = Controls(centering=True)
    added = policy_loss(batch, controls, NOMINAL) - policy_loss(batch, Controls(), NOMINAL)
    assert batch.train_head_logprobs is not None
    assert batch.sampler_head_logprobs is not None
    p, q = batch.train_head_logprobs.detach().exp(), batch.sampler_head_logprobs.exp()
    rho = (1 - q.sum(-1)) / (1 - p.sum(-1))
    term = ((q - rho[..., None] * p) * batch.train_head_logprobs.detach()).sum(-1)
    expected = (batch.advantages * term * batch.mask).sum() / batch.mask.sum()
    assert added.item() == pytest.approx(expected.item(), rel=1e-9)


def test_centering_without_a_head_is_refused() -> None:
    batch = inputs(12)
    bare = LossInputs(
        train_logprobs=batch.train_logprobs,
        old_logprobs=batch.old_logprobs,
        rollout_logprobs=batch.rollout_logprobs,
        advantages=batch.advantages,
        mask=batch.mask,
    )
    with pytest.raises(ValueError, match=r"rollout\.head > 0"):
        policy_loss(bare, Controls(centering=True), NOMINAL)


def test_an_outlier_of_a_masked_token_reaches_neither_value_nor_gradient() -> None:
    """log-ratios of 89 and more are inf after exp in float32, and 0 * inf is NaN."""
    train = torch.tensor([[0.0, -2.0, -0.1, 0.0]], requires_grad=True)
    rollout = torch.tensor([[0.0, -91.0, -0.2, -math.inf]])
    batch = LossInputs(
        train_logprobs=train,
        old_logprobs=rollout,
        rollout_logprobs=rollout,
        advantages=torch.tensor([[1.0]]),
        mask=torch.tensor([[1.0, 0.0, 1.0, 0.0]]),
    )
    loss = policy_loss(batch, Controls(), NOMINAL)
    loss.backward()
    assert train.grad is not None
    assert math.isfinite(float(loss.detach()))
    assert torch.isfinite(train.grad).all()
    assert train.grad[0, 1] == 0


def test_token_mean_of_nothing_is_zero() -> None:
    assert token_mean(torch.tensor([math.nan]), torch.tensor([0.0])).item() == 0.0


def test_group_advantages() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    advantages = group_advantages(rewards, 4)
    deviation = math.sqrt((0.75**2 + 3 * 0.25**2) / 3) + ADVANTAGE_FLOOR
    expected = [0.75 / deviation, *[-0.25 / deviation] * 3, 0.0, 0.0, 0.0, 0.0]
    torch.testing.assert_close(advantages, torch.tensor(expected))


def test_a_token_that_importance_masks_still_receives_the_drift_of_its_state() -> None:
    """The sampled token's own score is dropped; -A mu_w of the state that it stood in is not."""
    generator = torch.Generator().manual_seed(21)
    logits = torch.randn(1, 1, 6, generator=generator, dtype=torch.float64).requires_grad_()
    sampler = torch.log_softmax(logits.detach() + torch.randn(1, 1, 6, generator=generator, dtype=torch.float64), -1)
    log_p = torch.log_softmax(logits, -1)
    controls = Controls(centering=True, importance="mis", importance_low=0.9, importance_high=1.1)
    ratios = (log_p.detach() - sampler).exp()[0, 0]
    token = int(torch.argmax((ratios - 1).abs()))
    assert not 0.9 <= ratios[token] <= 1.1
    advantage = -1.5
    batch = LossInputs(
        train_logprobs=log_p[..., token],
        old_logprobs=log_p[..., token].detach(),
        rollout_logprobs=sampler[..., token],
        advantages=torch.tensor([[advantage]], dtype=torch.float64),
        mask=torch.ones(1, 1, dtype=torch.float64),
        train_head_logprobs=log_p,
        sampler_head_logprobs=sampler,
    )
    (gradient,) = torch.autograd.grad(policy_loss(batch, controls, NOMINAL), logits)
    p, q = log_p.detach().exp()[0, 0], sampler.exp()[0, 0]
    drift = torch.zeros(6, dtype=torch.float64)
    for v in range(6):
        weight = ratios[v] if 0.9 <= ratios[v] <= 1.1 else 0.0
        drift += q[v] * weight * (torch.eye(6, dtype=torch.float64)[v] - p)
    torch.testing.assert_close(gradient[0, 0], advantage * drift, rtol=1e-9, atol=1e-12)


def test_padding_may_hold_anything_with_centering_too() -> None:
    batch = inputs(22)
    assert batch.train_head_logprobs is not None
    assert batch.sampler_head_logprobs is not None
    padding = batch.mask == 0
    assert padding.any()
    spoilt = LossInputs(
        train_logprobs=batch.train_logprobs,
        old_logprobs=batch.old_logprobs.masked_fill(padding, math.inf),
        rollout_logprobs=batch.rollout_logprobs.masked_fill(padding, math.nan),
        advantages=batch.advantages,
        mask=batch.mask,
        train_head_logprobs=batch.train_head_logprobs,
        sampler_head_logprobs=batch.sampler_head_logprobs.masked_fill(padding[..., None], math.nan),
    )
    for controls in (Controls(centering=True), Controls(centering=True, ratio_reference="sampler")):
        expected, actual = (policy_loss(one, controls, NOMINAL) for one in (batch, spoilt))
        assert actual.item() == expected.item()
        leaf = batch.train_logprobs.grad_fn
        assert leaf is not None
        gradients = torch.autograd.grad(actual, [spoilt.train_logprobs, spoilt.train_head_logprobs])
        assert all(torch.isfinite(gradient).all() for gradient in gradients if gradient is not None)
