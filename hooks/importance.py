"""Importance weights for tokens that one policy sampled and another trains on.

A rule is a function f of the ratio x = p(token)/q(token), p the trainer's policy and q the sampler's. It is evaluated
in log space and bounded before any exponential, so that neither an outlier nor an infinite log-ratio under the mask
becomes inf or NaN. The same function weights the sampled token and, in score centering, every token of the sampler's
head: they must never disagree.

Sources: TIS and MIS as in the rollout-correction guides of verl and TRL; composition with centering, arXiv 2609.20807.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from trimtab.hooks.controls import Controls
from trimtab.hooks.sketch import MAX_LOG_RATIO

WeightRule = Callable[[Tensor], Tensor]
"""log-ratio (nats, any shape) -> weight of the same shape, without gradient."""


def unweighted(log_ratio: Tensor) -> Tensor:
    """f(x) = 1."""
    return torch.ones_like(log_ratio)


def truncated(high: float) -> WeightRule:
    """TIS: f(x) = min(x, high)."""
    log_high = min(math.log(high), MAX_LOG_RATIO)
    return lambda log_ratio: log_ratio.clamp(-MAX_LOG_RATIO, log_high).exp()


def masked(low: float, high: float) -> WeightRule:
    """MIS: f(x) = x where low <= x <= high, else 0."""
    log_low, log_high = math.log(max(low, 1e-30)), math.log(high)

    def weight(log_ratio: Tensor) -> Tensor:
        inside = (log_ratio >= log_low) & (log_ratio <= log_high)
        return torch.where(inside, log_ratio, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp() * inside

    return weight


def ppo_shaped(log_low: float, log_high: float, advantages: Tensor) -> WeightRule:
    """Weight of the gradient of min(xA, clip(x)A): f(x) = x where the token is not clipped for the sign of A, else 0.

    Args:
        log_low: log of the lower bound, which clips A < 0.
        log_high: log of the upper bound, which clips A > 0.
        advantages: A, broadcastable to the log-ratios.
    """

    def weight(log_ratio: Tensor) -> Tensor:
        kept = torch.where(advantages > 0, log_ratio <= log_high, log_ratio >= log_low)
        return torch.where(kept, log_ratio, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp() * kept

    return weight


def importance_rule(controls: Controls) -> WeightRule:
    """The rule that `controls.importance` names."""
    if controls.importance == "tis":
        return truncated(controls.importance_high)
    if controls.importance == "mis":
        return masked(controls.importance_low, controls.importance_high)
    return unweighted
