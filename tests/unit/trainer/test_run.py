"""A whole run: its files, and that going on from a checkpoint is going on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from trimtab.storage.store import Store
from trimtab.trainer.checkpoint import CheckpointError, read_checkpoint
from trimtab.trainer.config import CheckpointConfig, ConfigError, RunConfig, validated
from trimtab.trainer.grpo import StepRecord
from trimtab.trainer.run import CHECKPOINT, RESULT, STEPS, execute


def steps(folder: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (folder / STEPS).read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in ("seconds", "attempt")} for row in rows]


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
    last, expected = read_checkpoint(parts / CHECKPOINT), read_checkpoint(through / CHECKPOINT)
    assert last["attempt"] == 1
    for name, value in expected["model"].items():
        assert torch.equal(last["model"][name], value), name


def test_steps_that_are_done_again_are_not_logged_twice(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 3}), url="memory:", job="t", out=tmp_path)
    early = (tmp_path / CHECKPOINT).read_bytes()
    execute(tiny, url="memory:", job="t", out=tmp_path, resume=True)
    expected = steps(tmp_path)
    (tmp_path / CHECKPOINT).write_bytes(early)
    execute(tiny, url="memory:", job="t", out=tmp_path, resume=True)
    assert steps(tmp_path) == expected


def test_running_and_resuming_again_are_new_attempts_to_the_agent(tiny: RunConfig, tmp_path: Path) -> None:
    """Else the agent would take every summary of the second run for a contradiction of the first's."""
    url, config = f"local:{tmp_path / 'agent.db'}", tiny.model_copy(update={"steps": 2})
    attempts = []
    for folder, resume in (("a", False), ("b", False), ("b", True), ("b", True)):
        out = tmp_path / folder
        execute(config.model_copy(update={"steps": 2 + len(attempts)}), url=url, job="t", out=out, resume=resume)
        attempts.append(read_checkpoint(out / CHECKPOINT)["attempt"])
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
        ({"controls": {"train_format": "fp8-block"}}, r"controls\.train_format: 'fp8-block': .*128"),
        ({"schedule": [{"step": 3, "controls": {"sampler_format": "fp8-block"}}]}, r"controls\.sampler_format.*128"),
        ({"model": {"keep": ["nope"]}}, r"model\.keep: 'nope' matches no layer"),
        ({"outliers": {"layers": ["nope"]}}, r"outliers\.layers: 'nope' matches no layer"),
        ({"rollout": {"head": 0}, "controls": {"centering": True}}, r"controls\.centering: .*no sampler head"),
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
    state = read_checkpoint(tmp_path / CHECKPOINT)
    state |= {"overrides": {"centering": True, "ratio_reference": "recomputed"}, "generation": 5}
    torch.save(state, tmp_path / CHECKPOINT)
    execute(tiny.model_copy(update={"steps": 3}), url="memory:", job="t", out=tmp_path, resume=True)
    last = json.loads((tmp_path / STEPS).read_text().splitlines()[-1])
    assert last["generation"] == 5
    assert last["controls"]["centering"] is True


def test_a_checkpoint_of_another_configuration_is_refused_by_the_fields_that_differ(
    tiny: RunConfig, tmp_path: Path
) -> None:
    execute(tiny.model_copy(update={"steps": 1}), url="memory:", job="t", out=tmp_path)
    with pytest.raises(CheckpointError, match=r"another configuration \(seed was 0\)"):
        execute(tiny.model_copy(update={"seed": 9}), url="memory:", job="t", out=tmp_path, resume=True)


def test_how_often_checkpoints_are_written_may_change_on_resume(tiny: RunConfig, tmp_path: Path) -> None:
    execute(tiny.model_copy(update={"steps": 1}), url="memory:", job="t", out=tmp_path)
    often = tiny.model_copy(update={"steps": 2, "checkpoint": CheckpointConfig(every=1)})
    assert execute(often, url="memory:", job="t", out=tmp_path, resume=True).steps == 2


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
    assert read_checkpoint(tmp_path / CHECKPOINT)["step"] == 4
    execute(config, url="memory:", job="t", out=tmp_path, resume=True)
    assert steps(tmp_path) == expected


@pytest.mark.parametrize("content", [None, b"", b"not a checkpoint"])
def test_a_checkpoint_that_cannot_be_read_is_named(tiny: RunConfig, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / CHECKPOINT).write_bytes(content)
    with pytest.raises(CheckpointError, match=CHECKPOINT):
        execute(tiny, url="memory:", job="t", out=tmp_path, resume=True)
