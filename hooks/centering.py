"""Score centering (arXiv 2609.20807): remove the drift that a sampler unlike the trainer adds to a policy gradient.

With q the sampler's distribution at a prefix, p the trainer's and s_v = grad log p_v, the expected update splits into
E_q[A s] = E_q[A] mu + Cov_q(A, s), mu = E_q[s]. mu is 0 only where q = p; otherwise the first part pulls the trainer
towards the sampler (A > 0) or pushes it away without bound (A < 0). Centering subtracts it: for a token of advantage A
the loss gains

    + A * sum_v c_v log p_v,    c_v = sg[q_v f(p_v/q_v)],

f the importance rule of the sampled token (1 where there is none). Only log p carries gradient.

The sampler ships its top-k log-probs, the head H, normalised over the full vocabulary. The tail is modelled as the
trainer's, q_v = rho p_v with rho = (1 - Q_H)/(1 - P_H), and because sum_v p_v s_v = 0 it folds into the head:

    c_v = sg[q_v f(p_v/q_v) - alpha p_v] on H,    alpha = rho f(1/rho).

The *value* of the term means nothing once the head covers everything (rho is then ill-conditioned); its gradient stays
right, since the folded part is bounded by the tail mass. So monitor the total variation below, never the value.

Both tails are floored at 1e-6 (the paper's appendix A.3).
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
    train_head_logprobs: Tensor, sampler_head_logprobs: Tensor, rule: WeightRule = unweighted
) -> Centering:
    """The centering term of each token.

    Args:
        train_head_logprobs: [B, T, k] log p of the head's tokens, normalised over the full vocabulary, with gradient.
        sampler_head_logprobs: [B, T, k] log q of the same tokens, normalised over the full vocabulary.
        rule: importance rule of the sampled tokens; a rule that depends on the advantage takes it as [B, T, 1].

    Raises:
        ValueError: the two heads differ in shape.
    """
    if train_head_logprobs.shape != sampler_head_logprobs.shape:
        raise ValueError(
            f"train_head_logprobs: shape {tuple(train_head_logprobs.shape)} is not the sampler head's "
            f"{tuple(sampler_head_logprobs.shape)}; gather the trainer's log-probs at the sampler's head ids"
        )
    with torch.no_grad():
        log_p, log_q = train_head_logprobs.detach(), sampler_head_logprobs
        p, q = log_p.exp(), log_q.exp()
        sampler_mass, train_mass = q.sum(-1), p.sum(-1)
        sampler_tail = (1.0 - sampler_mass).clamp_min(TAIL_FLOOR)
        train_tail = (1.0 - train_mass).clamp_min(TAIL_FLOOR)
        log_rho = (sampler_tail.log() - train_tail.log()).unsqueeze(-1)
        alpha = log_rho.exp() * rule(-log_rho)
        coefficients = q * rule(log_p - log_q) - alpha * p
        distance = (q - p).abs().sum(-1) + (sampler_mass - train_mass).abs()
    return Centering(
        term=(coefficients * train_head_logprobs).sum(-1),
        sampler_mass=sampler_mass,
        train_mass=train_mass,
        total_variation=distance / 2,
    )
