"""Checkpoints: what they are written for, which of them a run goes on from, and going back to one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from run_files import newest, steps

from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.api.service import Service
from trimtab.trainer.checkpoint import CheckpointError, Checkpoints
from trimtab.trainer.config import RunConfig, validated
from trimtab.trainer.run import CHECKPOINTS, RESULT, STEPS, execute
from trimtab.trainer.sections import CheckpointConfig, ScheduledChange
from trimtab.trainer.step_record import StepRecord


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
    ("content", "told"),
    [(None, "no checkpoint to go on from"), (b"", r"0-3\.pt: is damaged, .*; remove it, and start w")],
)
def test_a_checkpoint_that_cannot_be_read_is_named(
    tiny: RunConfig, tmp_path: Path, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / CHECKPOINTS).mkdir()
        (tmp_path / CHECKPOINTS / "0-3.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=told):
        execute(tiny, url="memory:", job="t", out=tmp_path, resume=True)


def test_a_checkpoint_that_was_cut_off_is_told_to_be_damaged(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.model_copy(update={"steps": 2, "checkpoint": CheckpointConfig(every=1)})
    execute(config, url="memory:", job="t", out=tmp_path, attempt=0)
    newest_file = tmp_path / CHECKPOINTS / "0-2.pt"
    content = newest_file.read_bytes()
    for length in (100, len(content) // 2, len(content) - 30):
        newest_file.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"0-2\.pt: is damaged, .*the newest of the others, 0:1, is used"):
            execute(config, url="memory:", job="t", out=tmp_path, resume=True)
    newest_file.unlink()
    assert execute(config, url="memory:", job="t", out=tmp_path, resume=True).steps == 2


def test_only_the_newest_checkpoints_stay(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.model_copy(update={"checkpoint": CheckpointConfig(every=1, keep=2)})
    execute(config, url="memory:", job="t", out=tmp_path, attempt=4)
    assert Checkpoints(tmp_path / CHECKPOINTS, keep=2).names() == ("4:5", "4:6")


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
    service.close()
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
    service.close()
    state = newest(tmp_path)
    assert (state["attempt"], state["step"], state["restored"]) == (8, 2, "7:2")
    assert state["overrides"]["centering"] is True
    execute(config, url="memory:", job="t", out=tmp_path, attempt=9, resume=True)
    rows = [json.loads(line) for line in (tmp_path / STEPS).read_text().splitlines()]
    assert [(row["attempt"], row["step"]) for row in rows] == [(7, step) for step in range(6)] + [
        (9, step) for step in range(2, 8)
    ]
    assert rows[6]["controls"]["centering"] is True
