"""A whole run: its files, and that going on from a checkpoint is going on."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.api.service import Service
from trimtab.storage.store import Store
from trimtab.trainer.checkpoint import CheckpointError, Checkpoints
from trimtab.trainer.config import ConfigError, RunConfig, validated
from trimtab.trainer.run import CHECKPOINTS, CONTRACT, RESULT, STEPS, execute
from trimtab.trainer.sections import CheckpointConfig, ScheduledChange
from trimtab.trainer.step_record import StepRecord


def steps(folder: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (folder / STEPS).read_text().splitlines()]
    return [
        {key: value for key, value in row.items() if key not in ("rollout_seconds", "seconds", "attempt")}
        for row in rows
    ]


def newest(folder: Path) -> dict[str, Any]:
    return Checkpoints(folder / CHECKPOINTS, keep=5).newest()


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
    store = Store(tmp_path / "agent.db")
    assert store.quarantined("t") == 0
    assert len(store.attempts("t")) == 4
    store.close()


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


def test_a_checkpoint_of_another_configuration_is_refused_by_the_fields_that_differ(
    tiny: RunConfig, tmp_path: Path
) -> None:
    execute(tiny.model_copy(update={"steps": 1}), url="memory:", job="t", out=tmp_path)
    with pytest.raises(CheckpointError, match=r"another configuration \(seed: 0 in the checkpoint, 9 now\)"):
        execute(tiny.model_copy(update={"seed": 9}), url="memory:", job="t", out=tmp_path, resume=True)
    data = tiny.model_dump()
    data["controls"] |= {"clip_high": 0.4}
    data["update"] |= {"lr": 0.5}
    told = (
        f"checkpoint: written with another configuration (update.lr: {tiny.update.lr!r} in the checkpoint, 0.5 now; "
        f"controls.clip_high: {tiny.controls.clip_high!r} in the checkpoint, 0.4 now); resume with the same one"
    )
    with pytest.raises(CheckpointError, match=re.escape(told) + "$"):
        execute(validated(data), url="memory:", job="t", out=tmp_path, resume=True)


def test_fewer_steps_than_are_done_are_refused_and_no_more_leave_the_checkpoints_alone(
    tiny: RunConfig, tmp_path: Path
) -> None:
    execute(tiny.model_copy(update={"steps": 3}), url="memory:", job="t", out=tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match=r"steps: 2 is fewer than the 3 .*; give at least 3"):
        execute(tiny.model_copy(update={"steps": 2}), url="memory:", job="t", out=tmp_path, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    again = tiny.model_copy(update={"steps": 3})
    assert execute(again, url="memory:", job="t", out=tmp_path, resume=True).steps == 3
    assert len(list((tmp_path / CHECKPOINTS).glob("*.pt"))) == 1


def test_without_checkpoints_none_is_written(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.model_copy(update={"steps": 2, "checkpoint": CheckpointConfig(every=0)})
    execute(config, url="memory:", job="t", out=tmp_path)
    assert not (tmp_path / CHECKPOINTS).exists()


def test_how_often_checkpoints_are_written_may_change_on_resume(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 1}), url="memory:", job="t", out=tmp_path)
    often = tiny.model_copy(update={"steps": 2, "checkpoint": CheckpointConfig(every=1)})
    assert execute(often, url="memory:", job="t", out=tmp_path, resume=True).steps == 2


def test_what_is_refused_costs_an_earlier_run_nothing(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 2}), url="memory:", job="t", out=tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    wrong = validated(tiny.model_dump() | {"model": {**tiny.model.model_dump(), "width": 36}})
    with pytest.raises(ConfigError, match=r"36.*16"):
        execute(wrong, url="memory:", job="t", out=tmp_path)
    with pytest.raises(CheckpointError, match="another configuration"):
        execute(tiny.model_copy(update={"seed": 9}), url="memory:", job="t", out=tmp_path, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_a_run_killed_while_it_wrote_a_line_or_a_checkpoint_resumes(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny, url="memory:", job="t", out=tmp_path / "whole", attempt=0)
    out = tmp_path / "killed"
    execute(tiny.model_copy(update={"steps": 4}), url="memory:", job="t", out=out, attempt=0)
    with (out / STEPS).open("a") as log:
        log.write('{"step":4,"attempt":0,"rew')
    partial = out / CHECKPOINTS / "0-5.99.partial"
    partial.write_bytes(b"half")
    execute(tiny, url="memory:", job="t", out=out, attempt=0, resume=True)
    assert steps(out) == steps(tmp_path / "whole")
    assert not partial.exists()


def test_the_last_samplers_evaluation_has_its_cache_too(tiny: RunConfig, tmp_path: Path) -> None:
    rewards = {}
    for kv_format in ("none", "fp8"):
        data = tiny.model_dump() | {"steps": 1, "evaluation": {"prompts": 384}}
        data["controls"] |= {"sampler_format": "bf16", "kv_format": kv_format}
        result = execute(validated(data), url="memory:", job="t", out=tmp_path / kv_format)
        rewards[kv_format] = (result.reward_eval_bf16, result.reward_eval_sampler)
    assert rewards["none"][0] == rewards["none"][1]
    assert rewards["fp8"][0] != rewards["fp8"][1]


def test_a_checkpoint_of_another_job_is_refused(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 1}), url="memory:", job="mine", out=tmp_path)
    with pytest.raises(CheckpointError, match="of job 'mine', but this is 'yours'"):
        execute(tiny, url="memory:", job="yours", out=tmp_path, resume=True)


def test_a_stopped_run_goes_on_from_its_own_checkpoint_and_not_an_earlier_runs(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.model_copy(update={"checkpoint": CheckpointConfig(every=2)})
    execute(config, url="memory:", job="t", out=tmp_path)  # an earlier run, done
    expected = steps(tmp_path)

    def stop(record: StepRecord) -> None:
        if record.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(config, url="memory:", job="t", out=tmp_path, on_step=stop)
    assert not (tmp_path / RESULT).exists()
    assert newest(tmp_path)["step"] == 4
    execute(config, url="memory:", job="t", out=tmp_path, resume=True)
    assert steps(tmp_path) == expected


@pytest.mark.parametrize(
    ("content", "told"), [(None, "no checkpoint to go on from"), (b"", r"0-3\.pt: cannot be read")]
)
def test_a_checkpoint_that_cannot_be_read_is_named(
    tiny: RunConfig, tmp_path: Path, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / CHECKPOINTS).mkdir()
        (tmp_path / CHECKPOINTS / "0-3.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=told):
        execute(tiny, url="memory:", job="t", out=tmp_path, resume=True)


def test_a_checkpoint_of_another_model_is_refused_before_a_step(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 1}), url="memory:", job="t", out=tmp_path)
    checkpoints = Checkpoints(tmp_path / CHECKPOINTS, keep=5)
    state = checkpoints.newest()
    state["model"] = {name: value for name, value in state["model"].items() if name != "head.weight"}
    torch.save(state, checkpoints.path(checkpoints.names()[-1]))
    with pytest.raises(CheckpointError, match=r"of another model: head\.weight is absent there and \[16, 32\] here"):
        execute(tiny, url="memory:", job="t", out=tmp_path, resume=True)


def test_only_the_newest_checkpoints_stay(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.model_copy(update={"checkpoint": CheckpointConfig(every=1, keep=2)})
    execute(config, url="memory:", job="t", out=tmp_path, attempt=4)
    assert Checkpoints(tmp_path / CHECKPOINTS, keep=2).names() == ("4:5", "4:6")


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


BACK = OperatorAction(
    job="t",
    verb=OperatorVerb.PATCH_CONTROLS,
    issuer="me",
    reason="it fell",
    overrides={"restore": "7:2", "centering": True, "ratio_reference": "recomputed"},
)


def test_a_restore_lands_on_its_checkpoint_with_the_remedy_on_and_only_once(tiny: RunConfig, tmp_path: Path) -> None:
    """The command is a level: it comes again and again, in the new attempt too."""
    schedule = (ScheduledChange(step=4, controls={"lr_scale": 0.5}),)
    config = tiny.model_copy(update={"steps": 8, "checkpoint": CheckpointConfig(every=2), "schedule": schedule})
    service = Service.open(tmp_path / "agent.db")

    def ask(record: StepRecord) -> None:
        if (record.attempt, record.step) == (7, 4):
            service.operate(BACK)

    execute(config, url=f"local:{tmp_path / 'agent.db'}", job="t", out=tmp_path, attempt=7, on_step=ask)
    service.store.close()
    rows = [json.loads(line) for line in (tmp_path / STEPS).read_text().splitlines()]
    assert [(row["attempt"], row["step"]) for row in rows] == [(7, step) for step in range(6)] + [
        (8, step) for step in range(2, 8)
    ]
    after = rows[6]
    assert after["controls"]["centering"] is True
    assert after["generation"] == 1
    assert [row["controls"]["lr_scale"] for row in rows[4:]] == [0.5, 0.5, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5]
    # The same prompts, weights and random numbers as after the checkpoint: what was sampled is what was sampled then.
    assert after["reward_mean"] == rows[2]["reward_mean"]
    assert after["mismatch_std"] == rows[2]["mismatch_std"]
    assert newest(tmp_path)["restored"] == "7:2"


def test_a_run_killed_soon_after_a_restore_resumes_from_what_it_went_back_to(tiny: RunConfig, tmp_path: Path) -> None:
    """And not from the newest checkpoint of the attempt that it has left."""
    config = tiny.model_copy(update={"steps": 8, "checkpoint": CheckpointConfig(every=2)})
    service = Service.open(tmp_path / "agent.db")

    def ask(record: StepRecord) -> None:
        if (record.attempt, record.step) == (7, 4):
            service.operate(BACK)
        if (record.attempt, record.step) == (8, 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(config, url=f"local:{tmp_path / 'agent.db'}", job="t", out=tmp_path, attempt=7, on_step=ask)
    service.store.close()
    state = newest(tmp_path)
    assert (state["attempt"], state["step"], state["restored"]) == (8, 2, "7:2")
    assert state["overrides"]["centering"] is True
    execute(config, url="memory:", job="t", out=tmp_path, attempt=9, resume=True)
    rows = [json.loads(line) for line in (tmp_path / STEPS).read_text().splitlines()]
    assert [(row["attempt"], row["step"]) for row in rows] == [(7, step) for step in range(6)] + [
        (9, step) for step in range(2, 8)
    ]
    assert rows[6]["controls"]["centering"] is True


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
