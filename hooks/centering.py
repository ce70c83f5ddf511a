"""Score centering (arXiv 2609.20807): remove the drift that a sampler unlike the trainer adds to a policy gradient.

With q the sampler's distribution at a prefix, p the trainer's and s_v = grad log p_v, the expected update splits into
E_q[A s] = E_q[A] mu + Cov_q(A, s), mu = E_q[s]. mu is 0 only where q = p; otherwise the first part pulls the trainer
towards the sampler (A > 0) or pushes it away without bound (A < 0). Centering subtracts it: for a token of advantage A
the loss gains

    + A * sum_v c_v log p_v,    c_v = sg[q_v f_v],

f_v the weight that the objective gives the score of the sampled token, were it v: 1 in plain REINFORCE, a function of
p_v/q_v where a ratio against the sampler weights it, and where the ratio's denominator is a third policy d, the
trainer's before its first update, a function of p_v/d_v times one of d_v/q_v. Only log p carries gradient. f has to be
a function of the token alone, so a ratio of whole sequences cannot be centred.

The sampler ships its top-k log-probs, the head H, normalised over the full vocabulary. The tail is modelled as the
trainer's with constant ratios, q_v = rho p_v with rho = (1 - Q_H)/(1 - P_H), d_v likewise, and because
sum_v p_v s_v = 0 it folds into the head:

    c_v = sg[q_v f_v - alpha p_v] on H,    alpha = rho f_tail.

The *value* of the term means nothing once the head covers everything (rho is then ill-conditioned); its gradient stays
right, since the folded part is bounded by the tail mass. So monitor the total variation below, never the value.

All tails are floored at 1e-6 (the paper's appendix A.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.hooks.importance import WeightRule, unweighted

TAIL_FLOOR = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Centering:
    """The centering term of each token and what the head says about the mismatch; every field is [B, T]."""

    term: Tensor
    """sum over the head of c_v log p_v: multiply by the advantage and add to the loss."""
    sampler_mass: Tensor
    """Q_H, the sampler's probability of its own head."""
    train_mass: Tensor
    """P_H, the trainer's probability of that head."""
    total_variation: Tensor
    """(sum_H |q - p| + |Q_tail - P_tail|) / 2: a lower bound of TV(q, p), exact for a full head."""


def score_centering(
    train_head_logprobs: Tensor,
    sampler_head_logprobs: Tensor,
    rule: WeightRule = unweighted,
    *,
    old_head_logprobs: Tensor | None = None,
    old_rule: WeightRule = unweighted,
) -> Centering:
    """The centering term of each token.

    Args:
        train_head_logprobs: [B, T, k] log p of the head's tokens, normalised over the full vocabulary, with gradient.
        sampler_head_logprobs: [B, T, k] log q of the same tokens, normalised over the full vocabulary.
        rule: weight of a sampled token by its ratio; one that depends on the advantage takes it as [B, T, 1].
        old_head_logprobs: [B, T, k] log-probs of the ratio's denominator where that is not the sampler.
        old_rule: weight of a sampled token by the ratio of that denominator to the sampler, times which `rule` counts.

    Raises:
        ValueError: the heads differ in shape.
    """
    _check_shape("train_head_logprobs", train_head_logprobs, sampler_head_logprobs)
    with torch.no_grad():
        log_p, log_q = train_head_logprobs.detach(), sampler_head_logprobs
        p, q = log_p.exp(), log_q.exp()
        sampler_mass, train_mass = q.sum(-1), p.sum(-1)
        log_sampler_tail, log_train_tail = _log_tail(sampler_mass), _log_tail(train_mass)
        if old_head_logprobs is None:
            weight = rule(log_p - log_q)
            tail_weight = rule(log_train_tail - log_sampler_tail)
        else:
            _check_shape("old_head_logprobs", old_head_logprobs, sampler_head_logprobs)
            log_old_tail = _log_tail(old_head_logprobs.exp().sum(-1))
            weight = rule(log_p - old_head_logprobs) * old_rule(old_head_logprobs - log_q)
            tail_weight = rule(log_train_tail - log_old_tail) * old_rule(log_old_tail - log_sampler_tail)
        alpha = (log_sampler_tail - log_train_tail).exp() * tail_weight
        # Masked logits are -inf on both sides: no ratio, no probability, and so nothing to remove.
        impossible = (p == 0) & (q == 0)
        coefficients = torch.where(impossible, 0.0, q * weight - alpha * p)
        distance = (q - p).abs().sum(-1) + (sampler_mass - train_mass).abs()
    return Centering(
        term=(coefficients * torch.where(impossible, 0.0, train_head_logprobs)).sum(-1),
        sampler_mass=sampler_mass,
        train_mass=train_mass,
        total_variation=distance / 2,
    )


def _log_tail(head_mass: Tensor) -> Tensor:
    """[B, T, 1] log of what [B, T] leaves to the tail."""
    return (1.0 - head_mass).clamp_min(TAIL_FLOOR).log().unsqueeze(-1)


def _check_shape(name: str, head: Tensor, sampler_head: Tensor) -> None:
    if head.shape != sampler_head.shape:
        raise ValueError(
            f"{name}: shape {tuple(head.shape)} is not the sampler head's {tuple(sampler_head.shape)}; gather the "
            "log-probs at the sampler's head ids"
        )
