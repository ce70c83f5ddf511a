"""Tiny models for serving engines, and the trainer's log-probs of what it sampled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tiny_models import SIZES, saved_model, tiny_run
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from trimtab.trainer.config import RunConfig, validated
from trimtab.trainer.engines import converted
from trimtab.trainer.models.huggingface import HuggingFaceLM, load_model
from trimtab.trainer.quant import set_format
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Update, Weights
from trimtab.trainer.sampler_sections import VllmConfig
from trimtab.trainer.scoring import Scorer
from trimtab.trainer.tasks.characters import CharacterTokenizer
from trimtab.trainer.tasks.task import Prompts

END = CharacterTokenizer.eos_token_id
PAD = CharacterTokenizer.pad_token_id
PROMPTS = Prompts.left_padded([[11, 12, 13, 14], [25, 26], [31, 32, 33, 34, 35, 36]], [None] * 3, PAD)


def settings(**changes: Any) -> VllmConfig:
    return VllmConfig(**{"kind": "vllm", "max_model_len": 192, "max_num_seqs": 16, "kv_cache_gib": 0.05, **changes})


def prepared(folder: Path, *, tied: bool = False, **model: Any) -> tuple[HuggingFaceLM, HuggingFaceLM]:
    """A tiny Qwen3, plain and converted; `model` overrides the run's model section."""
    if tied:
        torch.manual_seed(0)
        Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=True)).save_pretrained(folder)
    else:
        saved_model("qwen3", folder)
    plain = load_model(folder)
    return plain, _converted(plain, run_of(folder, **model))


def run_of(folder: Path, **model: Any) -> RunConfig:
    data = tiny_run(folder)
    return validated({**data, "model": {**data["model"], **model}})


def _converted(plain: HuggingFaceLM, config: RunConfig) -> HuggingFaceLM:
    engine = converted(plain, config, "fp32")
    assert isinstance(engine, HuggingFaceLM)
    return engine


def update(weights: Weights, version: int, number_format: str = "fp32") -> Update:
    return Update(weights=weights, version=version, number_format=number_format)


def shaken(weights: Weights, scale: float = 0.2, seed: int = 5) -> dict[str, Tensor]:
    """Other weights: each value changed by a share of itself. Names of one tied tensor go on sharing it."""
    generator = torch.Generator().manual_seed(seed)
    changed: dict[int, Tensor] = {}
    for value in weights.values():
        if value.data_ptr() not in changed:
            changed[value.data_ptr()] = value * (1 + scale * torch.randn(value.shape, generator=generator))
    return {name: changed[value.data_ptr()] for name, value in weights.items()}


def sampled(sampler: Any, length: int = 24, *, seed: int = 1, **changes: Any) -> Rollout:
    how: dict[str, Any] = {"samples": 4, "head": 5, "temperature": 0.8, **changes}
    rollout = sampler.generate(PROMPTS, length, generator=torch.Generator().manual_seed(seed), **how)
    assert isinstance(rollout, Rollout)
    return rollout


def trained_logprobs(model: HuggingFaceLM, weights: Weights, rollout: Rollout, number_format: str) -> Tensor:
    """[B, T, V] log-probs of the trainer at the temperature of `sampled`."""
    model.load_state_dict(dict(weights))
    set_format(model, number_format)
    scorer = Scorer(rollout.responses.shape[1], 0.8)
    with torch.no_grad():
        return scorer.log_softmax(model, rollout.inputs, rollout.prompts.padding)


def of_tokens(log_p: Tensor, rollout: Rollout) -> Tensor:
    """[B, T]"""
    return log_p.gather(2, rollout.responses[..., None])[..., 0]


def differences(rollout: Rollout, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """Of each sampled token's log-prob, and of each head entry's."""
    live = rollout.logprobs != 0
    heads = log_p.gather(2, rollout.head_ids) - rollout.head_logprobs
    return (of_tokens(log_p, rollout) - rollout.logprobs)[live], heads[live]


def once_at(call: int, update: Update) -> Callable[[], Update | None]:
    """Arrivals of one update, the `call`th time that it is asked for."""
    asked = 0

    def arrivals() -> Update | None:
        nonlocal asked
        asked += 1
        return update if asked == call else None

    return arrivals
