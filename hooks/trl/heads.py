"""The sampler's head: the log-probs of its likeliest tokens at every position, which score centering needs.

TRL keeps the sampled token's alone. Two ways lead to the head: a rollout function that returns the two lists named
below beside what TRL asks of it, or vLLM, which is asked for k log-probs more a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trimtab.hooks.trl.twin import own_randomness

IDS, LOGPROBS = "sampler_head_ids", "sampler_head_logprobs"
"""What a rollout function returns for each response: [T][k] token ids, and their log-probs over the full vocabulary."""
MISSING = -torch.inf
"""Log-prob of an entry that is not there, on both sides: score centering leaves out what neither thinks possible."""


def head_refusal(trainer: Any, size: int) -> str:
    """Why no head of `size` entries is recorded; empty where one is."""
    reason = _unrecorded(trainer, size)
    return f"the rollouts record no sampler head: {reason}" if reason else ""


def _unrecorded(trainer: Any, size: int) -> str:
    """What is sampled from has to be the distribution that the log-probs are of (the preconditions of the slime fork
    vime): TRL asks vLLM for log-probs after the processors, which are over what top-p and its like have left."""
    if not size:
        return "attach was given no `head`; it takes vLLM, or a rollout_func that returns one, too"
    if getattr(trainer, "rollout_func", None) is None and not trainer.use_vllm:
        return "transformers' generate gives none; use vLLM, or a rollout_func that returns one"
    if getattr(trainer, "_is_vlm", False):
        return "the trainer's head is recomputed for text alone"
    if trainer.use_vllm and (getattr(trainer, "tools", None) or getattr(trainer, "environment_factories", None)):
        return "responses of several turns are put together from several generations"
    cut = _cut(trainer)
    return f"sampling is cut by {cut}, so that its log-probs are not over the full vocabulary" if cut else ""


def _cut(trainer: Any) -> str:
    neutral = {"top_p": (None, 1.0), "top_k": (None, 0, -1), "min_p": (None, 0.0), "repetition_penalty": (None, 1.0)}
    return ", ".join(name for name, values in neutral.items() if getattr(trainer, name, None) not in values)


class VLLMHead:
    """Keeps what vLLM says of the likeliest tokens, and hands TRL the sampled token's log-prob as it expects it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._last: tuple[list[Any], list[Any]] | None = None

    def taken_apart(self, prompts: Any, completions: Any, logprobs: Any, ids: Any) -> tuple[Any, Any, Any, Any]:
        """What `vllm_generation.generate` returns, with the sampled token alone, as TRL expects it."""
        self._last = (ids, logprobs)
        sampled = [
            [[dict(zip(row, values, strict=True)).get(token)] for token, row, values in zip(*response, strict=True)]
            for response in zip(completions, ids, logprobs, strict=True)
        ]
        return prompts, completions, sampled, [[[token] for token in response] for response in completions]

    def taken(self, length: int) -> tuple[Tensor, Tensor] | None:
        """[B, length, k] ids and log-probs of the last generation; None where there is none, or it is of more turns."""
        last, self._last = self._last, None
        return None if last is None else padded_head(*last, length=length, size=self.size)


def padded_head(ids: Sequence[Any], logprobs: Sequence[Any], *, length: int, size: int) -> tuple[Tensor, Tensor]:
    """[B, length, size] ids and log-probs of ragged [B][T][<= size...] lists, the likeliest first; a response longer
    than `length`, or one with another number of rows in the two, is a ValueError."""
    heads = torch.zeros((len(ids), length, size), dtype=torch.long)
    values = torch.full((len(ids), length, size), MISSING)
    for b, (rows, row_values) in enumerate(zip(ids, logprobs, strict=True)):
        if len(rows) > length or len(rows) != len(row_values):
            raise ValueError(
                f"{IDS}: response {b} has {len(rows)} rows of ids and {len(row_values)} of log-probs for at most "
                f"{length} tokens; give one row a token"
            )
        for t, (entries, entry_values) in enumerate(zip(rows, row_values, strict=True)):
            best = sorted(
                ((value, entry) for entry, value in zip(entries, entry_values, strict=True) if value is not None),
                reverse=True,
            )[:size]
            for k, (value, entry) in enumerate(best):
                heads[b, t, k], values[b, t, k] = entry, value
    return heads, values


def scored(trainer: Any, model: Any, inputs: dict[str, Any], *, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """[B, T] log-probs and entropies of the completion and [B, T, k] log-probs of the sampler's head, at the sampling
    temperature, from one forward pass with full logits.

    Args:
        trainer: whose temperature it is.
        model: what computes.
        inputs: prompt and completion ids with their masks, and the head's ids.
        length: T.
    """
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with trainer.accelerator.autocast():
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=length + 1).logits[:, :-1]
    logprobs = torch.log_softmax(logits.float() / trainer.temperature, -1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    chosen = logprobs.gather(-1, inputs["completion_ids"].unsqueeze(-1)).squeeze(-1)
    head = logprobs.gather(-1, inputs[IDS])
    return chosen, entropy, torch.where(inputs[LOGPROBS] == MISSING, MISSING, head)


def old_head(trainer: Any, batch: dict[str, Any], *, length: int) -> Tensor:
    """[B, T, k] the trainer's log-probs of the head before the first update, as many responses at a time as TRL scores,
    without gradient and without a draw from the run's own random numbers."""
    names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", IDS, LOGPROBS)
    size = trainer.args.per_device_train_batch_size
    parts = []
    with torch.no_grad(), own_randomness():
        for start in range(0, len(batch[IDS]), size):
            rows = {name: batch[name][start : start + size] for name in names}
            parts.append(scored(trainer, trainer.model, rows, length=length)[2])
    return torch.cat(parts)
