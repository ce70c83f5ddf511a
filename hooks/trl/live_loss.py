"""How the controls change a loss that TRL computes: by the tensors that it is given, never by its code.

What nobody has overridden is left exactly as TRL made it, to the bit. Shapes: B responses, T tokens, k head entries.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trimtab.hooks.centering_rule import objective_centering
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.importance import importance_weights
from trimtab.hooks.trl.panel import IMPORTANCE

Inputs = dict[str, Any]


def loss_mask(inputs: Inputs) -> Tensor:
    """[B, T] tokens that carry loss: of the completion, and not written by a tool."""
    mask: Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if inputs.get("tool_mask") is not None else mask


def denominator(inputs: Inputs, train_logprobs: Tensor) -> Tensor:
    """[B, T] what TRL's ratio is against: recomputed at generation, or the very weights where both are the same."""
    old: Tensor | None = inputs.get("old_per_token_logps")
    return train_logprobs.detach() if old is None else old


def steered(inputs: Inputs, train_logprobs: Tensor, controls: Controls, own: Controls) -> None:
    """Change a copy of the loss's inputs to what the controls say, where they are not the run's own.

    Args:
        inputs: the copy; TRL reads from it after its forward pass, of which `train_logprobs` have just come.
        train_logprobs: [B, T].
        controls: in effect.
        own: the run's own.
    """
    sampler: Tensor | None = inputs.get("sampling_per_token_logps")
    if sampler is None:
        return
    old, mask = denominator(inputs, train_logprobs), loss_mask(inputs)
    # A token that the sampler gave no log-prob for is neither weighted nor clipped.
    sampler = torch.where(torch.isnan(sampler), old, sampler)
    if any(getattr(controls, name) != getattr(own, name) for name in IMPORTANCE):
        _weigh(inputs, importance_weights(old - sampler, mask, controls))
    if controls.ratio_reference == "sampler" != own.ratio_reference:
        inputs["old_per_token_logps"] = sampler


def _weigh(inputs: Inputs, weights: Tensor) -> None:
    """Into TRL's own factor where the loss has it; else into the advantages: the weights are not negative, so the
    smaller of the two surrogates stays the smaller."""
    if "importance_sampling_ratio" in inputs:
        inputs["importance_sampling_ratio"] = weights
        return
    advantages: Tensor = inputs["advantages"]
    inputs["advantages"] = (advantages if advantages.dim() == 2 else advantages.unsqueeze(1)) * weights


def token_weights(trainer: Any, inputs: Inputs) -> Tensor:
    """[B, T] what a token's surrogate counts in TRL's loss in training, without importance weights.

    Raises:
        ValueError: the `loss_type` is not one that weighs tokens.
    """
    mask = loss_mask(inputs).float()
    if trainer.loss_type == "grpo":
        tokens = mask.sum(-1, keepdim=True).clamp(min=1.0) * len(mask)
    elif trainer.loss_type == "bnpo":
        tokens = mask.sum().clamp(min=1.0)
    elif trainer.loss_type == "dr_grpo":
        tokens = mask.new_tensor(len(mask) * trainer.max_completion_length)
    elif trainer.loss_type == "dapo":
        tokens = inputs["num_items_in_batch"].clamp(min=1.0) / trainer.accelerator.num_processes
        tokens = tokens / trainer.args.steps_per_generation
    else:
        raise ValueError(f"loss_type: {trainer.loss_type!r} does not weigh tokens, so that there is no centering term")
    weights: Tensor = mask / tokens / trainer.current_gradient_accumulation_steps
    return weights


def centering_loss(
    trainer: Any, inputs: Inputs, head: Tensor, controls: Controls, bounds: ClipBounds
) -> tuple[Tensor, Tensor]:
    """The term that score centering adds to the loss, and how far the heads are apart (the mean of what
    `score_centering` says of the tokens).

    Args:
        trainer: whose loss it is added to.
        inputs: the loss's, with the sampler's head in them.
        head: [B, T, k] the trainer's log-probs of the sampler's head, with gradient.
        controls: in effect.
        bounds: what the loss clips by.
    """
    advantages: Tensor = inputs["advantages"]
    advantages = advantages if advantages.dim() == 2 else advantages.unsqueeze(1)
    old = inputs.get("old_head_logprobs")
    centering = objective_centering(
        head,
        inputs["sampler_head_logprobs"],
        controls=controls,
        bounds=bounds,
        advantages=advantages,
        old_head_logprobs=head.detach() if old is None else old,
    )
    weights = token_weights(trainer, inputs)
    live = weights > 0
    term = torch.where(live, weights * advantages * centering.term, 0.0).sum()
    apart = torch.where(live, centering.total_variation, 0.0).sum() / live.sum().clamp(min=1)
    return term, apart
