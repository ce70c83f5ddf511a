"""What a run does with the controls that an agent alone sets: fresher rollouts, layers in BF16, a pin, a pause."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_files import newest, steps
from torch import nn

from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.api.service import Service
from trimtab.hooks.controls import Liveness
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import SUMMARY
from trimtab.storage.values import EntryKind
from trimtab.trainer.checkpoint import Checkpoints
from trimtab.trainer.config import ConfigError, RunConfig, validated
from trimtab.trainer.engines import capabilities
from trimtab.trainer.quant import Recipe, convert, quantised_formats, set_format
from trimtab.trainer.run import CHECKPOINTS, STEPS, execute
from trimtab.trainer.step_record import StepRecord
from trimtab.trainer.warm_start import build_decoder

Plan = dict[int, dict[str, Any]]


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / STEPS).read_text().splitlines()]


def changed(tiny: RunConfig, **tables: Any) -> RunConfig:
    data = tiny.model_dump()
    for name, value in tables.items():
        data[name] = {**data[name], **value} if isinstance(value, dict) else value
    return validated(data)


def operated(
    config: RunConfig, out: Path, plan: Plan, then: Callable[[StepRecord], None] | None = None
) -> list[StepSummary]:
    """Run it with overrides that a person sets in the middle of a step; what its agent got."""
    service = Service.open(out / "agent.db")

    def on_step(record: StepRecord) -> None:
        if record.step in plan:
            overrides = plan.pop(record.step)
            verb = OperatorVerb.PATCH_CONTROLS
            service.operate(OperatorAction(job="t", verb=verb, issuer="me", reason="why not", overrides=overrides))
        if then is not None:
            then(record)

    execute(config, url=f"local:{out / 'agent.db'}", job="t", out=out, attempt=3, on_step=on_step)
    recorded = service.store.recorded("t").entries
    service.close()
    return [SUMMARY.decode(one.payload) for one in recorded if one.kind is EntryKind.SUMMARY]


def test_rollouts_are_no_older_than_they_may_be(tiny: RunConfig, tmp_path: Path) -> None:
    config = changed(
        tiny,
        steps=9,
        rollout={"lag": 4},
        schedule=[
            {"step": 5, "controls": {"max_staleness": 1.5}},
            {"step": 7, "controls": {"max_staleness": 0}},
            {"step": 8, "controls": {"max_staleness": 1e9}},
        ],
    )
    execute(config, url="memory:", job="t", out=tmp_path)
    assert [row["staleness"] for row in rows(tmp_path)] == [0, 1, 2, 3, 4, 1, 1, 0, 4]


def test_weights_that_are_published_too_seldom_are_published_more_often(tiny: RunConfig, tmp_path: Path) -> None:
    schedule = [{"step": 4, "controls": {"max_staleness": 0}}]
    config = changed(tiny, rollout={"lag": 0}, asynchrony={"sync_every": 3}, schedule=schedule)
    execute(config, url="memory:", job="t", out=tmp_path)
    assert [row["staleness"] for row in rows(tmp_path)] == [0, 1, 2, 0, 0, 0]


def test_a_run_with_fresher_rollouts_resumes_to_the_bit(tiny: RunConfig, tmp_path: Path) -> None:
    schedule = [{"step": 2, "controls": {"max_staleness": 1, "train_format": "nvfp4", "bf16_last": 0.5}}]
    config = changed(tiny, model={"layers": 2}, checkpoint={"every": 2, "keep": 3}, schedule=schedule)
    execute(config, url="memory:", job="t", out=tmp_path / "whole", attempt=0)
    with pytest.raises(KeyboardInterrupt):
        execute(config, url="memory:", job="t", out=tmp_path / "cut", attempt=0, on_step=stop_at(4))
    execute(config, url="memory:", job="t", out=tmp_path / "cut", attempt=0, resume=True)
    assert steps(tmp_path / "cut") == steps(tmp_path / "whole")


def stop_at(step: int) -> Callable[[StepRecord], None]:
    def stop(record: StepRecord) -> None:
        if record.step == step:
            raise KeyboardInterrupt

    return stop


class Deep(nn.Module):
    """A model with `layers` decoder layers of a linear layer each."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16)) for _ in range(layers))
        self.head = nn.Linear(16, 16)


@pytest.mark.parametrize(
    ("layers", "share", "exact"),
    [(2, 0.0, 0), (2, 0.01, 1), (2, 0.5, 1), (2, 0.51, 2), (12, 1.0, 12), (20, 0.15, 3), (100, 0.07, 7), (10, 0.31, 4)],
)
def test_the_last_layers_compute_in_bf16_and_go_back(layers: int, share: float, exact: int) -> None:
    model = Deep(layers)
    convert(model, Recipe(name="test", format="fp8-row"))
    set_format(model, "nvfp4", bf16_last=share)
    found = quantised_formats(model)
    assert [found[f"blocks.{index}.0"] for index in range(layers)] == ["nvfp4"] * (layers - exact) + ["bf16"] * exact
    set_format(model, "nvfp4")
    assert set(quantised_formats(model).values()) == {"nvfp4", "bf16"}
    assert [name for name, number in quantised_formats(model).items() if number == "bf16"] == ["head"]


def test_a_run_computes_its_last_layers_in_bf16_when_it_is_told(tiny: RunConfig, tmp_path: Path) -> None:
    config = changed(tiny, model={"layers": 2}, controls={"train_format": "nvfp4"})
    operated(config, tmp_path, {1: {"bf16_last": 0.5}, 3: {"bf16_last": 1.0}})
    engines = [row["train_engine"] for row in rows(tmp_path)]
    assert engines == ["nvfp4-emulated"] * 3 + ["bf16-emulated+nvfp4-emulated"] * 2 + ["bf16-emulated"]


def test_the_contract_knows_of_layers_that_are_in_bf16_from_the_start(tiny: RunConfig, tmp_path: Path) -> None:
    config = changed(tiny, steps=1, model={"layers": 2}, controls={"train_format": "nvfp4", "bf16_last": 0.5})
    execute(config, url="memory:", job="t", out=tmp_path)
    told = json.loads((tmp_path / "contract.json").read_text())["differences"]
    assert {one["tensor"].split(".")[1] for one in told} == {"1"}


def test_a_pinned_checkpoint_stays_until_it_is_let_go(tiny: RunConfig, tmp_path: Path) -> None:
    config = changed(tiny, steps=9, checkpoint={"every": 1, "keep": 2})
    there: dict[int, tuple[str, ...]] = {}
    checkpoints = Checkpoints(tmp_path / CHECKPOINTS, keep=2)

    def look(record: StepRecord) -> None:
        there[record.step] = checkpoints.names()

    sent = operated(config, tmp_path, {2: {"pin": "3:2"}, 6: {"pin": None}}, look)
    assert there[2] == ("3:2", "3:3")
    assert there[5] == ("3:2", "3:5", "3:6")
    assert there[7] == ("3:7", "3:8")
    assert there[8] == ("3:8", "3:9")
    assert sent[6].capabilities.checkpoints == ("3:2", "3:5", "3:6")


def test_a_pin_outlives_a_resume(tiny: RunConfig, tmp_path: Path) -> None:
    config = changed(tiny, steps=6, checkpoint={"every": 1, "keep": 2})
    operated(config, tmp_path, {2: {"pin": "3:2"}})
    longer = changed(config, steps=9)
    execute(longer, url=f"file:{tmp_path / 'spool'}", job="t", out=tmp_path, attempt=4, resume=True)
    assert Checkpoints(tmp_path / CHECKPOINTS, keep=2).names() == ("3:2", "4:8", "4:9")


def test_a_pause_ends_when_a_person_lifts_it_and_leaves_a_checkpoint(tiny: RunConfig, tmp_path: Path) -> None:
    """Which is written for the pause alone: the run is not due for one before its end."""
    config = changed(tiny, checkpoint={"every": 100})
    checkpoints = Checkpoints(tmp_path / CHECKPOINTS, keep=5)

    class Lifted(Service):
        """The agent of the run, at which a person lifts the pause once it has come to that."""

        def ingest(self, summary: StepSummary) -> Any:
            if checkpoints.names() == ("3:3",) and self.state("t").person_overrides:
                verb = OperatorVerb.PATCH_CONTROLS
                lift = {"paused": None}
                self.operate(OperatorAction(job="t", verb=verb, issuer="me", reason="enough", overrides=lift))
            return super().ingest(summary)

    sent = operated_by(Lifted, config, tmp_path, {1: {"paused": True}})
    assert [item.step for item in sent] == list(range(6))
    assert [item.generation for item in sent] == [0, 0, 0, 2, 2, 2]
    assert checkpoints.names() == ("3:3", "3:6")
    assert all(not item.refusals for item in sent)


def operated_by(kind: type[Service], config: RunConfig, out: Path, plan: Plan) -> list[StepSummary]:
    """As `operated`, with an agent of another kind in the process."""
    from trimtab.api import local

    class Transport(local.LocalTransport):
        def __init__(self, path: str, job: str) -> None:
            super().__init__(path, job)
            self.service = kind(self.service.database)

    from trimtab.hooks.transport import open as opening

    usual = opening.OPENERS["local"]
    opening.OPENERS["local"] = lambda target: Transport(target.path, target.job)
    try:
        return operated(config, out, plan)
    finally:
        opening.OPENERS["local"] = usual


def test_a_pause_has_an_end_of_its_own(tiny: RunConfig, tmp_path: Path) -> None:
    config = changed(tiny, pause={"seconds": 0.05}, checkpoint={"every": 0})
    sent = operated(config, tmp_path, {1: {"paused": True, "clip_low": 0.1}})
    assert len(rows(tmp_path)) == 6
    assert sent[3].refusals == ("paused: over after 0.05 s, the longest wait that is allowed",)
    assert [item.overrides for item in sent] == [{}] * 3 + [{"clip_low": 0.1}] * 3


def test_a_restore_that_comes_in_a_pause_is_carried_out_when_it_ends(tiny: RunConfig, tmp_path: Path) -> None:
    """A pause that has had its time: the restore was sent along with it."""
    config = changed(tiny, pause={"seconds": 0.05}, checkpoint={"every": 2})
    operated(config, tmp_path, {3: {"paused": True, "restore": "3:2"}})
    assert [(row["attempt"], row["step"]) for row in rows(tmp_path)] == [(3, step) for step in range(5)] + [
        (4, step) for step in range(2, 6)
    ]
    assert newest(tmp_path)["restored"] == "3:2"


@pytest.mark.parametrize("table", ["controls", "schedule"])
def test_a_run_does_not_pause_itself(tiny: RunConfig, table: str) -> None:
    change: Any = {"paused": True} if table == "controls" else [{"step": 2, "controls": {"paused": True}}]
    with pytest.raises(ConfigError, match=r"controls\.paused: a run does not pause itself"):
        changed(tiny, **{table: change})


def test_what_a_trainer_can_do_is_told_as_it_is(tiny: RunConfig) -> None:
    usual = capabilities(tiny, build_decoder(tiny)).controls
    named = {name: usual[name] for name in ("paused", "max_staleness", "bf16_last", "pin")}
    live = Liveness.LIVE
    assert named == {"paused": live, "max_staleness": Liveness.NEXT_ROLLOUT, "bf16_last": live, "pin": live}
    assert capabilities(changed(tiny, checkpoint={"every": 0}), build_decoder(tiny)).controls["pin"] is Liveness.ABSENT
    flat = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    config = changed(tiny, outliers={"channels": 0})
    assert capabilities(config, flat).controls["bf16_last"] is Liveness.ABSENT
