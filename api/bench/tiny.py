"""The model that benches share: a tiny random Qwen3 on running sums."""

from __future__ import annotations

from typing import Any

import torch

from trimtab.hooks.emitter import Emitter
from trimtab.hooks.transport.memory import MemoryTransport
from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import capabilities
from trimtab.trainer.grpo import GRPOTrainer
from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.tasks.running_sum import END, PAD, RunningSum


def tiny_qwen3(vocabulary: int) -> Any:
    """Four layers, 128 wide, a million parameters; random weights that are the same every time."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(  # type: ignore[no-untyped-call]
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=128,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=END,
            pad_token_id=PAD,
        )
    )


def tiny_trainer(config: RunConfig, vocabulary: int, task: RunningSum) -> GRPOTrainer:
    """A trainer of it on `task` at step 0, attached to nothing."""
    model = HuggingFaceLM(tiny_qwen3(vocabulary))
    emitter = Emitter(
        MemoryTransport(), job="bench", attempt=0, controls=config.controls, capabilities=capabilities(config, model)
    )
    return GRPOTrainer(config, emitter, model, task)
