"""What the samplers in front of a serving engine share: requests of it, and rollouts of its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.quant.layers import quant_layers
from trimtab.trainer.quant.linear import QuantLinear
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Weights
from trimtab.trainer.tasks.task import Prompts

PREFIX = "causal_lm."
"""What the trainer's names have in front of those of Hugging Face."""
MAX_HEAD = 128
EXTENSION = "trimtab.trainer.rollouts.vllm_quant.Extension"
"""What vLLM's workers are asked for beside what they can do themselves."""
KV_TYPES = {"none": "auto", "fp8": "fp8", "fp8-e5m2": "fp8_e5m2"}
"""What vLLM calls the number formats of a key-value cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One sampled response of n tokens."""

    tokens: npt.NDArray[np.int64]
    """[n]"""
    logprobs: npt.NDArray[np.float32]
    """[n]"""
    head_ids: npt.NDArray[np.int64]
    """[n, k], most probable first."""
    head_logprobs: npt.NDArray[np.float32]
    """[n, k]"""
    versions: Sequence[tuple[int, int]]
    """(version, first token) for each version of the weights that sampled some of them, in order."""


def second_names(model: HuggingFaceLM) -> frozenset[str]:
    """Of tied weights, all but the first: checkpoints have them under one name."""
    first = dict(model.named_parameters())
    return frozenset(name for name, _ in model.named_parameters(remove_duplicate=False) if name not in first)


def checkpoint_weights(weights: Weights, leave_out: frozenset[str]) -> dict[str, Tensor]:
    """By the names of Hugging Face, without those to `leave_out`."""
    return {name.removeprefix(PREFIX): value.detach() for name, value in weights.items() if name not in leave_out}


def seeds(count: int, generator: torch.Generator) -> list[int]:
    """One for each request, so that what it samples does not depend on those beside it."""
    return torch.randint(2**62, (count,), generator=generator).tolist()


def unpadded(prompts: Prompts) -> Iterator[list[int]]:
    """The tokens of each row."""
    padding = [0] * len(prompts.tokens) if prompts.padding is None else prompts.padding.tolist()
    for row, missing in zip(prompts.tokens.tolist(), padding, strict=True):
        yield row[missing:]


def assembled(prompts: Prompts, answers: Sequence[Answer], *, length: int, head: int, pad: int, engine: str) -> Rollout:
    """The rollout of `answers`, one a row of `prompts`, filled up to `length` tokens with `pad`."""
    batch = len(answers)
    responses = torch.full((batch, length), pad)
    logprobs = torch.zeros(batch, length)
    head_ids = torch.arange(head).repeat(batch, length, 1)
    head_logprobs = torch.zeros(batch, length, head)
    versions = torch.empty(batch, length, dtype=torch.int64)
    for row, answer in enumerate(answers):
        count = len(answer.tokens)
        responses[row, :count] = torch.from_numpy(answer.tokens)
        logprobs[row, :count] = torch.from_numpy(answer.logprobs)
        head_ids[row, :count] = torch.from_numpy(answer.head_ids)
        head_logprobs[row, :count] = torch.from_numpy(answer.head_logprobs)
        for version, first in answer.versions:  # each up to the next, and the last over the padding
            versions[row, first:] = version
    return Rollout(
        prompts=prompts,
        responses=responses,
        logprobs=logprobs,
        entropy=None,
        head_ids=head_ids,
        head_logprobs=head_logprobs,
        versions=versions,
        engine=engine,
    )


def quantisation(model: HuggingFaceLM) -> dict[str, Any]:
    """The `quantization_config` with which vLLM computes as the converted `model` does: see `vllm_quant`.

    Raises:
        ValueError: the model quantises experts, or has outliers injected, which vLLM is not given.
    """
    quantised, kept, live = [], {}, ""
    execution = "auto"
    for name, layer in quant_layers(model):
        short = name.removeprefix(PREFIX)
        if not isinstance(layer, QuantLinear):
            raise ValueError(
                f"model.path: {short} holds experts, which vLLM rollouts do not quantise; use kind = 'torch'"
            )
        if layer.input_scale is not None:
            raise ValueError("outliers.channels: are injected in the trainer's own sampler only; use kind = 'torch'")
        if layer.kept:
            kept[short] = layer.format.name
        else:
            quantised.append(short)
            live, execution = layer.format.name, layer.execution
    _check_merged(model)
    return {
        "quant_method": "trimtab",
        "format": live,
        "execution": execution,
        "quantised": quantised,
        "kept": kept,
    }


def _check_merged(model: HuggingFaceLM) -> None:
    """Refuse groups of layers that vLLM merges and the recipe keeps in part."""
    for name, layer in quant_layers(model):
        kept = [part for part, other in layer.merged.items() if other.kept]
        if kept and len(kept) < len(layer.merged):
            parent = name.removeprefix(PREFIX).rpartition(".")[0]
            raise ValueError(
                f"model.keep: vLLM multiplies by {', '.join(layer.merged)} of {parent} in one go, and only "
                f"{', '.join(kept)} is kept; keep all of them or none, or use kind = 'torch'"
            )
