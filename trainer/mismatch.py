"""What a scored batch says about sampler and trainer beyond its sampled tokens, by the names of `StepSummary.scalars`.

`head_tv` is the total variation between the sampler's head and the trainer's of the same tokens, with the tail as one
more token (`Centering.total_variation`), averaged over the live tokens.

`centering_size` is what score centering would add to the update: |A| sum_v |c_v| over the head, averaged over the live
tokens, with c_v = q_v - rho p_v as in `trimtab.hooks.centering`, unweighted. It is told whether or not centering is on.
Where the head leaves almost nothing to the tail, rho is ill-conditioned and so is the size; the total variation is not.

`retained_fraction` is the share that importance masking keeps: of live tokens, or of responses where it weights whole
ones. It is judged by the log-probs before the first update.

Everything is computed from tensors that the step has anyway. Sizes: B sequences, T response tokens, k head entries.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.hooks.centering import TAIL_FLOOR
from trimtab.hooks.controls import Controls
from trimtab.hooks.importance import importance_weights
from trimtab.trainer.batch import Batch


@torch.no_grad()
def mismatch_scalars(batch: Batch, controls: Controls) -> dict[str, float]:
    """What is observed of it: nothing of heads where the rollouts record none, nothing of masking where there is
    none."""
    live = batch.mask > 0
    if not bool(live.any()):
        return {}
    scalars: dict[str, float] = {}
    if batch.head_ids.shape[-1]:
        variation, size = _head_distances(batch.old_head_logprobs[live], batch.head_logprobs[live])
        advantages = batch.advantages.expand_as(batch.mask)[live].abs()
        scalars |= {"head_tv": float(variation.mean()), "centering_size": float((advantages * size).mean())}
    if controls.importance == "mis":
        scalars["retained_fraction"] = _retained(batch, live, controls)
    return scalars


def _head_distances(trainer: Tensor, sampler: Tensor) -> tuple[Tensor, Tensor]:
    """[n] total variation, and [n] sum of |c_v|, of [n, k] log-probs."""
    p, q = trainer.exp(), sampler.exp()
    train_tail, sampler_tail = 1 - p.sum(-1), 1 - q.sum(-1)
    variation = ((q - p).abs().sum(-1) + (sampler_tail - train_tail).abs()) / 2
    rho = sampler_tail.clamp_min(TAIL_FLOOR) / train_tail.clamp_min(TAIL_FLOOR)
    return variation, (q - rho[:, None] * p).abs().sum(-1)


def _retained(batch: Batch, live: Tensor, controls: Controls) -> float:
    kept = importance_weights(batch.old_logprobs - batch.rollout_logprobs, batch.mask, controls) > 0
    if controls.importance_level == "token":
        return float(kept[live].float().mean())
    return float((kept & live).any(-1)[live.any(-1)].float().mean())
