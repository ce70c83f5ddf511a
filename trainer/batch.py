"""A scored rollout: everything that stays the same while a step makes its updates."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trimtab.trainer import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Tensors of B sequences, T response tokens and k head entries; rows are sequences."""

    tokens: Tensor
    """[B, prompt + T - 1] model input."""
    padding: Tensor | None
    """[B] pad tokens on the left of each; None where there are none."""
    responses: Tensor
    """[B, T]"""
    mask: Tensor
    """[B, T] 1.0 on live tokens."""
    advantages: Tensor
    """[B, 1]"""
    rollout_logprobs: Tensor
    """[B, T] recorded by the sampler."""
    head_ids: Tensor
    """[B, T, k]"""
    head_logprobs: Tensor
    """[B, T, k] recorded by the sampler."""
    old_logprobs: Tensor
    """[B, T] recomputed by the trainer before the first update."""
    old_head_logprobs: Tensor
    """[B, T, k] of the sampler's head, likewise."""
    entropy: Tensor
    """[B, T] of the trainer before the first update, nats."""
    reference_logprobs: Tensor | None
    """[B, T] of the reference weights; None without a KL penalty."""
    shadow_old_logprobs: Tensor | None
    """[B, T] the ratio's denominator as BF16 would compute it; None in a step without the twin."""

    def rows(self, index: Tensor) -> Batch:
        """The sequences at `index`, a [n] tensor of row numbers."""
        return rows.chosen(self, index)
