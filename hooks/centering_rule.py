"""Score centering for the objective that the controls name: the weight that centering integrates over the vocabulary
has to be the very weight that the loss gives a sampled token's score, or it adds the drift that it should remove.

| objective | weight against the sampler | weight against the trainer's old policy |
|---|---|---|
| `ppo` | r where it is not clipped, else 0 | the same of train/old, times the importance weight of old/sampler |
| `cispo` | r within its bounds | the same of train/old, times the importance weight of old/sampler |
| `reinforce` | the importance weight of train/sampler | the same: there is no ratio |

`gspo` weights a sequence, so it has no term.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from trimtab.hooks.centering import Centering, score_centering
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.importance import clamped, importance_rule, ppo_shaped


def objective_centering(
    train_head_logprobs: Tensor,
    sampler_head_logprobs: Tensor,
    *,
    controls: Controls,
    bounds: ClipBounds,
    advantages: Tensor,
    old_head_logprobs: Tensor | None = None,
) -> Centering:
    """The centering term of each token, for the loss that `controls` name; multiply it by the advantage, aggregate it
    like the surrogate, without an importance weight, and add it to the loss.

    Args:
        train_head_logprobs: [B, T, k] log p of the head's tokens, normalised over the full vocabulary, with gradient.
        sampler_head_logprobs: [B, T, k] log q of the same tokens, normalised over the full vocabulary.
        controls: objective, ratio reference, dual clip and importance weight are read, whether centering is on is not.
        bounds: where the loss clips.
        advantages: [B, T] or [B, 1].
        old_head_logprobs: [B, T, k] the trainer's before its first update; needed where the ratio is against them.

    Raises:
        ValueError: the controls allow no term, the heads differ in shape, or `old_head_logprobs` are missing where the
            ratio is against them.
    """
    conflict = replace(controls, centering=True).conflict()
    if conflict is not None:
        raise ValueError(conflict[1])
    importance = importance_rule(controls)
    if controls.objective == "reinforce":
        return score_centering(train_head_logprobs, sampler_head_logprobs, importance)
    if controls.objective == "cispo":
        rule = clamped(bounds.low, bounds.high)
    else:
        rule = ppo_shaped(bounds.low, bounds.high, advantages.unsqueeze(-1), math.log(controls.dual_clip))
    if controls.ratio_reference == "sampler":
        return score_centering(train_head_logprobs, sampler_head_logprobs, rule)
    if old_head_logprobs is None:
        raise ValueError(
            "centering: the ratio is against the trainer's old log-probs, and old_head_logprobs, the old log-probs of "
            "the sampler's head, are missing; record them, or set ratio_reference to sampler"
        )
    return score_centering(
        train_head_logprobs, sampler_head_logprobs, rule, old_head_logprobs=old_head_logprobs, old_rule=importance
    )
