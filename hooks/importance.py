"""Weights of tokens that one policy sampled and another trains on, as functions of a ratio of the two.

A rule is evaluated in log space and bounded before any exponential, so that neither an outlier nor an infinite
log-ratio becomes inf. The same rule weights the sampled token and, in score centering, every token of the sampler's
head: they must never disagree.

Truncation (TIS) and masking (MIS) keep a bias in exchange for a bounded variance. Bounds are always there: (0, inf) is
full importance sampling, clamped to e^+-20, and with `inside="one"` it is no weight at all. Nobody divides by the
number of tokens that are kept.

Sources: TIS and MIS as in the rollout-correction guides of verl and TRL; masking that keeps 1, IcePop in the code of
arXiv 2609.20807, which also says how they compose with centering; dual clip, arXiv 1912.09729.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from trimtab.hooks.controls import Controls, ImportanceInside, ImportanceLevel
from trimtab.hooks.sketch import MAX_LOG_RATIO

WeightRule = Callable[[Tensor], Tensor]
"""log-ratio (nats, any shape) -> weight of the same shape, without gradient."""


def unweighted(log_ratio: Tensor) -> Tensor:
    """f(x) = 1."""
    return torch.ones_like(log_ratio)


def clamped(log_low: float, log_high: float) -> WeightRule:
    """f(x) = x, but no less than e^log_low and no more than e^log_high. Raises ValueError if low is above high."""
    _check_band(log_low, log_high)
    low, high = (min(max(bound, -MAX_LOG_RATIO), MAX_LOG_RATIO) for bound in (log_low, log_high))
    return lambda log_ratio: log_ratio.clamp(low, high).exp()


def truncated(low: float, high: float) -> WeightRule:
    """TIS: f(x) = min(max(x, low), high). Raises ValueError if low is above high."""
    _check_band(low, high)
    return clamped(_log(low), _log(high))


def masked(low: float, high: float, inside: ImportanceInside = "ratio") -> WeightRule:
    """MIS: f(x) = x, or 1, where low <= x <= high; else 0. Raises ValueError if low is above high."""
    _check_band(low, high)
    log_low, log_high = _log(low), _log(high)

    def weight(log_ratio: Tensor) -> Tensor:
        kept = (log_ratio >= log_low) & (log_ratio <= log_high)
        return kept.to(log_ratio.dtype) if inside == "one" else _ratio_where(kept, log_ratio)

    return weight


def ppo_shaped(log_low: float, log_high: float, advantages: Tensor, log_dual: float = math.inf) -> WeightRule:
    """Weight of the gradient of min(xA, clip(x)A): f(x) = x where the token is not clipped for the sign of A, else 0.

    Args:
        log_low: log of the lower bound, which clips A < 0.
        log_high: log of the upper bound, which clips A > 0.
        advantages: A, broadcastable to the log-ratios.
        log_dual: log of the dual clip's bound, above which A < 0 is clipped too.
    """

    def weight(log_ratio: Tensor) -> Tensor:
        below, above = log_ratio <= log_high, log_ratio >= log_low
        if log_dual < math.inf:
            above = above & (log_ratio <= log_dual)
        return _ratio_where(torch.where(advantages > 0, below, above), log_ratio)

    return weight


def importance_rule(controls: Controls) -> WeightRule:
    """The rule that `controls.importance` names."""
    if controls.importance == "tis":
        return truncated(controls.importance_low, controls.importance_high)
    if controls.importance == "mis":
        return masked(controls.importance_low, controls.importance_high, controls.importance_inside)
    return unweighted


def importance_weights(log_ratio: Tensor, mask: Tensor, controls: Controls) -> Tensor:
    """[B, T] weight of each token by `controls`, without gradient.

    Args:
        log_ratio: [B, T] trainer against sampler, nats; anything where the mask is 0.
        mask: [B, T] not 0 on live tokens.
        controls: names the rule, its bounds, and whether it is about tokens or whole sequences.
    """
    return importance_rule(controls)(at_level(log_ratio.detach(), mask, controls.importance_level))


def at_level(log_ratio: Tensor, mask: Tensor, level: ImportanceLevel) -> Tensor:
    """[B, T] the log-ratio that stands for each token: its own, or over the live tokens of its sequence the sum of all
    (`sequence`, the ratio of the sequences' probabilities) or their mean (`geometric`)."""
    live = mask > 0
    own = torch.where(live, log_ratio, 0.0)
    if level == "token":
        return own
    total = own.sum(-1, keepdim=True)
    if level == "geometric":
        total = total / live.sum(-1, keepdim=True).clamp_min(1)
    return total.expand_as(own)


def _check_band(low: float, high: float) -> None:
    if not low <= high:  # NaN fails here too
        raise ValueError(f"low, high: {low!r} is not at or below {high!r}; give the band's lower bound first")


def _ratio_where(kept: Tensor, log_ratio: Tensor) -> Tensor:
    return torch.where(kept, log_ratio, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp() * kept


def _log(bound: float) -> float:
    return math.log(bound) if bound > 0 else -math.inf
