"""The model that benches share: a tiny random Qwen3 on running sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from trimtab.api.bench.trainer import bench_trainer
from trimtab.trainer.config import RunConfig
from trimtab.trainer.grpo import GRPOTrainer
from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.tasks.running_sum import END, PAD, RunningSum


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyShape:
    """Sizes of the model; heads are a quarter of its width."""

    layers: int = 4
    width: int = 128
    hidden: int = 512
    vocabulary: int = 512


def tiny_qwen3(shape: TinyShape) -> Any:
    """The model, with random weights that are the same every time."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(  # type: ignore[no-untyped-call]
        Qwen3Config(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            intermediate_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=shape.width // 4,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=END,
            pad_token_id=PAD,
        )
    )


def tiny_trainer(config: RunConfig, shape: TinyShape, task: RunningSum) -> GRPOTrainer:
    """A trainer of it on `task` at step 0, attached to nothing."""
    return bench_trainer(config, HuggingFaceLM(tiny_qwen3(shape)), task)
