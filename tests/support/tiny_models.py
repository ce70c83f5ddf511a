"""Random language models of real families, in folders as `save_pretrained` writes them, and runs that train them.

Every linear layer is of whole 128s, so that the blocks of every format fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import SUMMARY
from trimtab.storage.database import Database
from trimtab.storage.store import Store
from trimtab.storage.values import EntryKind
from trimtab.trainer.config import validated
from trimtab.trainer.run import CONTRACT, STEPS, RunResult, execute
from trimtab.trainer.tasks.characters import CharacterTokenizer

JOB = "models"
SIZES: dict[str, Any] = {
    "vocab_size": 260,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
}
LAYERS = range(SIZES["num_hidden_layers"])
ATTENTION = tuple(f"self_attn.{kind}_proj.weight" for kind in "qkvo")
DENSE = ("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight")
EXPERTS = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
FEED_FORWARD = {"qwen3": DENSE, "llama": DENSE, "qwen3_moe": EXPERTS}
"""Weights behind the attention of each layer, by family."""


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SIZES))


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZES))


def qwen3_moe() -> PreTrainedModel:
    config = Qwen3MoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=128)
    model = Qwen3MoeForCausalLM(config)
    for layer in model.model.layers:  # routers start at zero, and with them every expert is as good as another
        torch.nn.init.normal_(layer.mlp.gate.weight)
    return model


FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {"qwen3": qwen3, "llama": llama, "qwen3_moe": qwen3_moe}


def saved_model(family: str, folder: Path, *, seed: int = 0) -> Path:
    """A random model of `family`, written into `folder`.

    It says digits and common letters more than anything else, so that it is right by chance and rewards differ.
    """
    torch.manual_seed(seed)
    model = FAMILIES[family]()
    loud = [*b"0123456789aeinorst", CharacterTokenizer.eos_token_id]
    with torch.no_grad():
        model.lm_head.weight[loud] *= 12
    model.save_pretrained(folder)
    return folder


def tiny_run(folder: Path, **changes: Any) -> dict[str, Any]:
    """Three steps of a model in `folder`, as plain data; `changes` replace whole sections.

    It spells words backward, since the verifier gives a share for every letter in its place.
    """
    return {
        "steps": 3,
        "task": {
            "kind": "reasoning_gym",
            "dataset": "spell_backward",
            "settings": {"min_word_len": 3, "max_word_len": 6},
            "response_length": 8,
            "threshold": "none",
        },
        "model": {"kind": "huggingface", "path": str(folder), "tokenizer": "characters"},
        "rollout": {"prompts": 4, "group_size": 4, "head": 5, "lag": 1},
        "update": {"lr": 1e-4},
        "shadow": {"every": 1},
        "evaluation": {"prompts": 4},
        **changes,
    }


def logged_steps(out: Path) -> list[dict[str, Any]]:
    """The lines of a run's step log."""
    return [json.loads(line) for line in (out / STEPS).read_text().splitlines()]


def contract(out: Path) -> dict[str, Any]:
    """What a run says that it computes its weights in."""
    return json.loads((out / CONTRACT).read_text())  # type: ignore[no-any-return]


def stored_summaries(db: Path, job: str) -> list[StepSummary]:
    """Every summary that the agent has of `job`, in the order in which they came; none may be in quarantine."""
    store = Store(Database(db))
    try:
        assert store.quarantined(job) == 0
        entries = store.recorded(job).entries
    finally:
        store.database.close()
    return [SUMMARY.decode(entry.payload) for entry in entries if entry.kind is EntryKind.SUMMARY]


def run_attached(data: dict[str, Any], tmp_path: Path, **options: Any) -> RunResult:
    """Run `data` in `tmp_path / "out"`, attached to an agent whose file is `tmp_path / "agent.db"`."""
    return execute(validated(data), url=f"local:{tmp_path / 'agent.db'}", job=JOB, out=tmp_path / "out", **options)


def patch(overrides: dict[str, Any]) -> OperatorAction:
    """A person's change of a run's controls."""
    return OperatorAction(
        job=JOB, verb=OperatorVerb.PATCH_CONTROLS, issuer="me", reason="to see what happens", overrides=overrides
    )
