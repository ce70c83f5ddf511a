"""A whole run: its files, and that going on from a checkpoint is going on."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from run_files import newest, steps

from trimtab.storage.database import Database
from trimtab.storage.store import Store
from trimtab.trainer.checkpoint import CheckpointError, Checkpoints
from trimtab.trainer.config import ConfigError, RunConfig, validated
from trimtab.trainer.run import CHECKPOINTS, CONTRACT, RESULT, STEPS, execute


def test_a_run_leaves_its_files(tiny: RunConfig, tmp_path: Path) -> None:
    seen: list[int] = []
    result = execute(tiny, url="memory:", job="t", out=tmp_path, on_step=lambda record: seen.append(record.step))
    assert seen == list(range(6))
    assert [row["step"] for row in steps(tmp_path)] == seen
    assert RunConfig.model_validate_json((tmp_path / "config.json").read_text()) == tiny
    written = json.loads((tmp_path / RESULT).read_text())
    assert written["reward_eval_bf16"] == result.reward_eval_bf16
    assert result.steps == 6
    assert result.sampler_format == "nvfp4"
    assert result.reward_eval_bf16 is not None
    assert 0 <= result.reward_eval_bf16 <= 1


def test_a_resumed_run_is_bit_identical(tiny: RunConfig, tmp_path: Path) -> None:
    through, parts = tmp_path / "through", tmp_path / "parts"
    execute(tiny, url="memory:", job="t", out=through, attempt=0)
    execute(tiny.model_copy(update={"steps": 4}), url="memory:", job="t", out=parts, attempt=0)
    execute(tiny, url="memory:", job="t", out=parts, attempt=0, resume=True)
    assert steps(parts) == steps(through)
    last, expected = newest(parts), newest(through)
    assert last["attempt"] == 1
    for name, value in expected["model"].items():
        assert torch.equal(last["model"][name], value), name


def test_steps_that_are_done_again_are_not_logged_twice(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 3}), url="memory:", job="t", out=tmp_path)
    execute(tiny, url="memory:", job="t", out=tmp_path, resume=True)
    expected = steps(tmp_path)
    (early, *later) = sorted((tmp_path / CHECKPOINTS).glob("*.pt"), key=lambda path: path.stat().st_mtime_ns)
    for path in later:
        path.unlink()
    assert early.name.endswith("-3.pt")
    execute(tiny, url="memory:", job="t", out=tmp_path, resume=True)
    assert steps(tmp_path) == expected


def test_running_and_resuming_again_are_new_attempts_to_the_agent(tiny: RunConfig, tmp_path: Path) -> None:
    """Else the agent would take every summary of the second run for a contradiction of the first's."""
    url, config = f"local:{tmp_path / 'agent.db'}", tiny.model_copy(update={"steps": 2})
    attempts = []
    for folder, resume in (("a", False), ("b", False), ("b", True), ("b", True)):
        out = tmp_path / folder
        execute(config.model_copy(update={"steps": 2 + len(attempts)}), url=url, job="t", out=out, resume=resume)
        attempts.append(newest(out)["attempt"])
        time.sleep(1.1)  # attempts are numbered by the clock, in seconds
    assert attempts == sorted(set(attempts))
    store = Store(Database(tmp_path / "agent.db"))
    assert store.quarantined("t") == 0
    assert len(store.attempts("t")) == 4
    store.database.close()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"controls": {"sampler_format": "nvfp5"}}, r"controls\.sampler_format: 'nvfp5'"),
        ({"model": {"width": 36}}, r"controls\.sampler_format: 'nvfp4': .*36.*16"),
        (
            {"model": {"width": 48, "hidden": 48}, "controls": {"train_format": "mxfp8"}},
            r"controls\.train_format: 'mxfp8': .*48.*32",
        ),
        (
            {
                "model": {"width": 48, "hidden": 48},
                "schedule": [{"step": 3, "controls": {"sampler_format": "mxfp8"}}],
            },
            r"controls\.sampler_format.*48.*32",
        ),
        (
            {"model": {"execution": "native"}, "controls": {"train_format": "fp8-tensor"}},
            r"model\.execution: 'native' is refused: .* asked for by controls\.(train|sampler)_format = ",
        ),
        ({"model": {"width": 36}}, r"keep this layer out \(model\.keep in a run's configuration\)"),
        ({"model": {"moe_only": True}}, r"model\.moe_only: the model has no experts"),
        ({"model": {"keep_last": 1.0}}, r"keeps every layer of the model and quantises none"),
        ({"model": {"keep": ["nope"]}}, r"model\.keep: 'nope' matches no layer"),
        ({"outliers": {"layers": ["nope"]}}, r"outliers\.layers: 'nope' matches no layer"),
        ({"rollout": {"head": 0}, "controls": {"centering": True}}, r"controls\.centering: .*no sampler head"),
        (
            {"rollout": {"overlong_buffer": 7}},
            r"rollout\.overlong_buffer: 7 tokens is more than .*, 6; give at most that",
        ),
        ({"shadow": {"every": 0}, "controls": {"clip_mode": "calibrated"}}, r"controls\.clip_mode: .*BF16 twin"),
    ],
)
def test_what_the_model_cannot_do_is_refused_before_anything_runs(
    tiny: RunConfig, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    data = tiny.model_dump()
    for section, value in changes.items():
        data[section] = value if isinstance(value, list) else {**data[section], **value}
    with pytest.raises(ConfigError, match=told):
        execute(validated(data), url="memory:", job="t", out=tmp_path)
    assert not (tmp_path / STEPS).exists()


def test_a_resumed_run_keeps_the_overrides_of_its_agent(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 2}), url="memory:", job="t", out=tmp_path)
    state = newest(tmp_path)
    state |= {"overrides": {"centering": True, "ratio_reference": "recomputed"}, "generation": 5}
    torch.save(state, Checkpoints(tmp_path / CHECKPOINTS, keep=5).path(f"{state['attempt']}:{state['step']}"))
    execute(tiny.model_copy(update={"steps": 3}), url="memory:", job="t", out=tmp_path, resume=True)
    last = json.loads((tmp_path / STEPS).read_text().splitlines()[-1])
    assert last["generation"] == 5
    assert last["controls"]["centering"] is True


def test_what_is_refused_costs_an_earlier_run_nothing(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 2}), url="memory:", job="t", out=tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    wrong = validated(tiny.model_dump() | {"model": {**tiny.model.model_dump(), "width": 36}})
    with pytest.raises(ConfigError, match=r"36.*16"):
        execute(wrong, url="memory:", job="t", out=tmp_path)
    with pytest.raises(CheckpointError, match="another configuration"):
        execute(tiny.model_copy(update={"seed": 9}), url="memory:", job="t", out=tmp_path, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_the_last_samplers_evaluation_has_its_cache_too(tiny: RunConfig, tmp_path: Path) -> None:
    rewards = {}
    for kv_format in ("none", "fp8"):
        data = tiny.model_dump() | {"steps": 1, "evaluation": {"prompts": 384}}
        data["controls"] |= {"sampler_format": "bf16", "kv_format": kv_format}
        result = execute(validated(data), url="memory:", job="t", out=tmp_path / kv_format)
        rewards[kv_format] = (result.reward_eval_bf16, result.reward_eval_sampler)
    assert rewards["none"][0] == rewards["none"][1]
    assert rewards["fp8"][0] != rewards["fp8"][1]


def test_a_checkpoint_of_another_model_is_refused_before_a_step(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 1}), url="memory:", job="t", out=tmp_path)
    checkpoints = Checkpoints(tmp_path / CHECKPOINTS, keep=5)
    state = checkpoints.newest()
    state["model"] = {name: value for name, value in state["model"].items() if name != "head.weight"}
    torch.save(state, checkpoints.path(checkpoints.names()[-1]))
    with pytest.raises(CheckpointError, match=r"of another model: head\.weight is absent there and \[16, 32\] here"):
        execute(tiny, url="memory:", job="t", out=tmp_path, resume=True)


def test_ten_steps_and_ten_more_are_twenty(tiny: RunConfig, tmp_path: Path) -> None:
    """With everything that draws numbers: prompts, tokens, NVFP4's stochastic rounding, bfloat16 weights."""
    data = tiny.model_dump() | {"steps": 20, "recipe": None}
    data["model"] = {**data["model"], "weights": "bfloat16", "gradient_checkpointing": True}
    data["controls"] |= {"train_format": "nvfp4-pretrain", "backward": "quantized", "dynamic_sampling": True}
    config = validated(data)
    through, parts = tmp_path / "through", tmp_path / "parts"
    execute(config, url="memory:", job="t", out=through, attempt=0)
    execute(config.model_copy(update={"steps": 10}), url="memory:", job="t", out=parts, attempt=0)
    execute(config, url="memory:", job="t", out=parts, attempt=0, resume=True)
    assert steps(parts) == steps(through)
    last, expected = newest(parts), newest(through)
    for name, value in expected["model"].items():
        assert torch.equal(last["model"][name], value), name


def test_the_contract_names_what_trainer_and_sampler_compute_otherwise(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 1}), url="memory:", job="t", out=tmp_path)
    contract = json.loads((tmp_path / CONTRACT).read_text())
    differing = {difference["tensor"] for difference in contract["differences"]}
    assert differing == {f"blocks.0.{name}.weight" for name in ("attention.qkv", "attention.out", "up", "down")}
    assert contract["trainer"]["head.weight"] == contract["sampler"]["head.weight"]
    assert contract["report"].startswith("4 tensors are BF16 in the trainer but NVFP4 in the sampler")


def test_what_a_recipe_keeps_may_be_said_otherwise(tiny: RunConfig, tmp_path: Path) -> None:
    data = tiny.model_dump() | {"steps": 1}
    data["model"] = {**data["model"], "keep_attention": True}
    execute(validated(data), url="memory:", job="t", out=tmp_path)
    contract = json.loads((tmp_path / CONTRACT).read_text())
    quantised = {name for name, row in contract["sampler"].items() if row["quantised"]}
    assert quantised == {"blocks.0.up.weight", "blocks.0.down.weight"}


def test_the_sampler_may_have_a_head_in_low_precision(tiny: RunConfig, tmp_path: Path) -> None:
    data = tiny.model_dump() | {"steps": 1}
    data["model"] = {**data["model"], "keep_head": False}
    data["controls"] |= {"sampler_format": "fp8-tensor", "kv_format": "fp8"}
    execute(validated(data), url="memory:", job="t", out=tmp_path)
    contract = json.loads((tmp_path / CONTRACT).read_text())
    assert all(row["quantised"] for row in contract["sampler"].values())
    assert "head.weight" in contract["sampler"]
    assert {row["format"] for row in contract["trainer"].values()} == {"bf16"}


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_an_asynchronous_run_resumes(tiny: RunConfig, tmp_path: Path, mode: str) -> None:
    """Not bit for bit, since which version samples is a matter of speed; but step for step, with the same prompts."""
    data = tiny.model_dump()
    data["rollout"]["lag"] = 0
    data["asynchrony"] = {"mode": mode, "max_staleness": 2, "in_flight": "keep"}
    config = validated(data)
    execute(config.model_copy(update={"steps": 3}), url="memory:", job="t", out=tmp_path, attempt=0)
    result = execute(config, url="memory:", job="t", out=tmp_path, resume=True)
    assert [row["step"] for row in steps(tmp_path)] == list(range(6))
    assert result.steps == 6
    assert result.reward_eval_bf16 is not None


@pytest.mark.parametrize(("layers", "digits", "modulus"), [(4, 16, 10), (8, 24, 60)])
def test_deeper_models_and_longer_chains_train(
    tiny: RunConfig, tmp_path: Path, layers: int, digits: int, modulus: int
) -> None:
    data = tiny.model_dump() | {"steps": 2}
    data["task"] |= {"digits": digits, "modulus": modulus}
    data["model"] |= {"layers": layers, "keep_last": 0.25}
    data["warm_start"] |= {"steps": 3, "batch": 8}
    result = execute(validated(data), url="memory:", job="t", out=tmp_path)
    assert result.steps == 2
    contract = json.loads((tmp_path / CONTRACT).read_text())
    blocks = {name.split(".")[1] for name, row in contract["sampler"].items() if row["quantised"]}
    assert blocks == {str(layer) for layer in range(layers - layers // 4)}
    assert newest(tmp_path)["model"]["embedding.weight"].shape == (16 if modulus == 10 else 64, 32)
    assert all(math.isfinite(float(str(row["grad_norm"]))) for row in steps(tmp_path))


def test_sgd_resumes_to_the_bit_and_follows_lr_scale(tiny: RunConfig, tmp_path: Path) -> None:
    data = tiny.model_dump()
    data["update"] |= {"optimizer": "sgd", "lr": 0.1, "gradient_clip": float("inf")}
    data["schedule"] = [{"step": 3, "controls": {"lr_scale": 0.0}}]
    config = validated(data)
    through, parts = tmp_path / "through", tmp_path / "parts"
    execute(config, url="memory:", job="t", out=through, attempt=0)
    execute(config.model_copy(update={"steps": 3, "schedule": ()}), url="memory:", job="t", out=parts, attempt=0)
    before = newest(parts)["model"]
    assert newest(parts)["optimizer"]["state"] == {}
    after = newest(through)["model"]
    assert all(torch.equal(after[name], value) for name, value in before.items())  # lr_scale = 0 from then on
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    plain = config.model_copy(update={"schedule": ()})
    execute(plain, url="memory:", job="t", out=whole, attempt=0)
    execute(plain.model_copy(update={"steps": 3}), url="memory:", job="t", out=resumed, attempt=0)
    execute(plain, url="memory:", job="t", out=resumed, attempt=0, resume=True)
    assert steps(resumed) == steps(whole)
    last, expected = newest(resumed)["model"], newest(whole)["model"]
    assert all(torch.equal(last[name], value) for name, value in expected.items())
    assert any(not torch.equal(before[name], value) for name, value in expected.items())
