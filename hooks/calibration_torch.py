"""The sums of `trimtab.hooks.calibration_sample` from a loss's own tensors, on their device, without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.hooks.calibration_sample import RATIOS, SIGNS, SUMS
from trimtab.hooks.sketch import CELL_SHIFT, CELLS, MAX_EXPONENT, MAX_LOG_RATIO


@torch.no_grad()
def calibration_sums(log_ratio: Tensor, shadow_log_ratio: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    """[signs, ratios, sums, CELLS] float64 of one minibatch. Add those of more minibatches and ranks, bring the total
    to the host, and give it to `CalibrationSample.of_cells`.

    The first minibatch after a rollout tells nothing where the trainer's own log-probs are the denominator: both ratios
    are 1 there. It does no harm either, but for making the tail a smaller share.

    Args:
        log_ratio: [B, T] what the loss clips, nats.
        shadow_log_ratio: [B, T] the same with every engine replaced by BF16 at the same weights.
        advantages: [B, T], or [B, 1] where a sequence has one; tokens of advantage 0 are left out.
        weights: [B, T] of the tokens' surrogates in the loss; a token of weight 0 is left out, and its other values may
            be anything. One whose log-ratio is not finite, in either, is left out of both.
    """
    advantages = advantages.expand_as(weights)
    live = (weights > 0) & (advantages != 0) & log_ratio.isfinite() & shadow_log_ratio.isfinite()
    weight = torch.where(live, weights, 0.0).double().flatten()
    strength = torch.where(live, advantages, 0.0).double().abs().flatten()
    first = (advantages > 0).to(torch.int64).flatten() * CELLS
    sums = weight.new_zeros(len(RATIOS), len(SUMS), len(SIGNS) * CELLS)
    for row, ratio in zip(sums, (log_ratio, shadow_log_ratio), strict=True):
        x = torch.where(live, ratio, 0.0).flatten()
        half = x.float().clamp(-(2.0**MAX_EXPONENT), 2.0**MAX_EXPONENT).half()
        cell = (half.view(torch.int16) >> CELL_SHIFT).to(torch.int64) + CELLS // 2 + first
        update = weight * strength * x.double().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        row.scatter_add_(1, cell.expand(len(SUMS), -1), torch.stack([live.flatten().double(), weight, update]))
    return sums.view(len(RATIOS), len(SUMS), len(SIGNS), CELLS).permute(2, 0, 1, 3).contiguous()
