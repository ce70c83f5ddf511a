"""How the losses of a minibatch's tokens become one number.

Every aggregation is a weight a token, so that the loss is a weighted sum and whatever else asks how much a token counts
(calibrated clipping does) gets the loss's own answer. A sequence without a live token counts as a sequence of loss 0.

Sources: token mean, DAPO (arXiv 2503.14476); mean of sequence means, GRPO (arXiv 2402.03300); fixed length, Dr.GRPO
(arXiv 2503.20783).
"""

from __future__ import annotations

from torch import Tensor

from trimtab.hooks.controls import Aggregation


def token_weights(mask: Tensor, aggregation: Aggregation) -> Tensor:
    """[B, T] weight of each token in the loss; 0 where the mask is.

    Args:
        mask: [B, T] not 0 on live tokens.
        aggregation: `token_mean` is 1 / live tokens of the minibatch, `sequence_mean` 1 / (B live tokens of the
            sequence), `fixed_length` 1 / (B T), T being the longest that a response can be, in tokens.
    """
    live = (mask > 0).to(mask.dtype)
    if aggregation == "token_mean":
        return live / live.sum().clamp_min(1.0)
    if aggregation == "sequence_mean":
        return live / (len(live) * live.sum(-1, keepdim=True).clamp_min(1.0))
    return live / live.numel()
