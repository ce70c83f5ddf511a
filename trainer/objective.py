"""GRPO's objective, as pure functions of tensors.

Shapes: B sequences, T response tokens, k head entries; a minibatch is rows of the batch. Every function keeps gradient
in `train_logprobs` (and the trainer's head) only. Sources: GRPO (arXiv 2402.03300), PPO (arXiv 1707.06347).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trimtab.hooks.centering import score_centering
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.importance import importance_rule, ppo_shaped
from trimtab.hooks.sketch import MAX_LOG_RATIO

ADVANTAGE_FLOOR = 1e-4
"""Added to the group's standard deviation, as in TRL."""


HEADS = ("train_head_logprobs", "sampler_head_logprobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """What one minibatch's loss is made of."""

    train_logprobs: Tensor
    """[B, T] with gradient."""
    old_logprobs: Tensor
    """[B, T] recomputed by the trainer before the first update."""
    rollout_logprobs: Tensor
    """[B, T] recorded by the sampler."""
    advantages: Tensor
    """[B, T]."""
    mask: Tensor
    """[B, T] 1.0 on live tokens."""
    train_head_logprobs: Tensor | None = None
    """[B, T, k] the trainer's log-probs of the sampler's head, with gradient; needed for score centering."""
    sampler_head_logprobs: Tensor | None = None
    """[B, T, k] the sampler's."""

    def live(self) -> LossInputs:
        """The same with 0 outside the mask: padding may hold anything, and 0 times infinity is not 0."""
        changes = {
            name: _live(value, self.mask)
            for name in ("train_logprobs", "old_logprobs", "rollout_logprobs", *HEADS)
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **changes)


def group_advantages(rewards: Tensor, group_size: int) -> Tensor:
    """(reward - group mean) / (group standard deviation + floor), [B]; groups are consecutive rows."""
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(1, keepdim=True)
    return (centred / (groups.std(1, keepdim=True) + ADVANTAGE_FLOOR)).reshape(-1)


def policy_loss(inputs: LossInputs, controls: Controls, bounds: ClipBounds) -> Tensor:
    """The loss to minimise: token mean of -min(rA, clip(r)A) w, plus the centering term if `controls.centering`.

    r is train against the denominator that `controls.ratio_reference` names; w weights trainer-old against sampler by
    `controls.importance`, and is 1 where the ratio is already taken against the sampler.

    Raises:
        ValueError: centering is on and the inputs hold no head.
    """
    inputs = inputs.live()
    against_sampler = controls.ratio_reference == "sampler"
    denominator = inputs.rollout_logprobs if against_sampler else inputs.old_logprobs
    log_ratio = inputs.train_logprobs - denominator
    objective = clipped_objective(log_ratio, inputs.advantages, bounds)
    if not against_sampler:
        objective = objective * importance_rule(controls)((inputs.old_logprobs - inputs.rollout_logprobs).detach())
    if controls.centering:
        objective = objective - inputs.advantages * _centering_term(inputs, controls, bounds)
    return -token_mean(objective, inputs.mask)


def clipped_objective(log_ratio: Tensor, advantages: Tensor, bounds: ClipBounds) -> Tensor:
    """min(rA, clip(r)A) of each token; `bounds.low` acts where A < 0, `bounds.high` where A > 0.

    The ratio is clamped in log space before the exponential, so that no token, masked or live, becomes inf.
    """
    bounded = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    clipped = bounded.clamp(bounds.low, bounds.high)
    return torch.minimum(bounded.exp() * advantages, clipped.exp() * advantages)


def token_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over live tokens; 0 when there is none."""
    return _live(values, mask).sum() / mask.sum().clamp_min(1.0)


def _live(values: Tensor, mask: Tensor) -> Tensor:
    live = mask > 0
    return torch.where(live if values.dim() == mask.dim() else live.unsqueeze(-1), values, 0.0)


def _centering_term(inputs: LossInputs, controls: Controls, bounds: ClipBounds) -> Tensor:
    if inputs.train_head_logprobs is None or inputs.sampler_head_logprobs is None:
        raise ValueError("centering: on, but the rollouts recorded no head; set rollout.head > 0")
    # Against the sampler, PPO's own clip is the importance rule of the sampled token, so the term integrates the same.
    if controls.ratio_reference == "sampler":
        rule = ppo_shaped(bounds.low, bounds.high, inputs.advantages.unsqueeze(-1))
    else:
        rule = importance_rule(controls)
    return score_centering(inputs.train_head_logprobs, inputs.sampler_head_logprobs, rule).term
