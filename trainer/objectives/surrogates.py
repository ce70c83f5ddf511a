"""What each token contributes to the objective that is maximised, before weights and aggregation.

Bounds are in log space, and a log-ratio is clamped there before the exponential, so no token becomes inf.

- `ppo`: min(rA, clip(r)A), PPO (arXiv 1707.06347). The lower bound acts where A < 0, the upper where A > 0. Dual clip
  (arXiv 1912.09729, as in verl): where A < 0, never below cA.
- `gspo`: the same of the sequence's ratio, the geometric mean of its tokens' (arXiv 2507.18071). It is written as that
  paper's GSPO-token, sg[s] r / sg[r], whose value is s and whose gradient is GSPO's where A is one a sequence.
- `cispo`: sg[clip(r)] A log p (arXiv 2506.13585): both bounds act on both signs, and no token loses its gradient.
  The bounds are factors around 1, like everybody's here and in verl, NeMo-RL and slime; TRL's `epsilon_high` is the cap
  itself, so its 5.0 is a `clip_high` of 4.0 here, with a `clip_low` of 1.0, which never clips.
- `reinforce`: A log p.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trimtab.hooks.controls import ClipBounds
from trimtab.hooks.importance import at_level, clamped
from trimtab.hooks.sketch import MAX_LOG_RATIO


def clipped_objective(log_ratio: Tensor, advantages: Tensor, bounds: ClipBounds, dual_clip: float = math.inf) -> Tensor:
    """min(rA, clip(r)A) of each token, and where A < 0 at least `dual_clip` A."""
    bounded = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    clipped = bounded.clamp(bounds.low, bounds.high)
    objective = torch.minimum(bounded.exp() * advantages, clipped.exp() * advantages)
    if dual_clip < math.inf:
        objective = torch.where(advantages < 0, torch.maximum(objective, dual_clip * advantages), objective)
    return objective


def sequence_log_ratio(train_logprobs: Tensor, denominator: Tensor, mask: Tensor) -> Tensor:
    """[B, T] mean log-ratio of the live tokens of the sequence, at each of them; the gradient is the token's own."""
    mean = at_level((train_logprobs - denominator).detach(), mask, "geometric")
    return mean + train_logprobs - train_logprobs.detach()


def cispo_objective(log_ratio: Tensor, train_logprobs: Tensor, advantages: Tensor, bounds: ClipBounds) -> Tensor:
    """sg[clip(r)] A log p of each token."""
    return clamped(bounds.low, bounds.high)(log_ratio.detach()) * advantages * train_logprobs
