"""Two processes train as one does: the same steps, the same controls at the same step, the same checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import RankProcesses
from tiny_models import saved_model, tiny_run
from train_ranks import train

from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.api.service import Service
from trimtab.hooks.native import LOADER
from trimtab.hooks.transport.spool import read_spool
from trimtab.trainer.checkpoint import Checkpoints
from trimtab.trainer.config import RunConfig, validated
from trimtab.trainer.step_record import StepRecord

pytestmark = pytest.mark.slow

BASE: dict[str, Any] = {
    "steps": 6,
    "task": {"digits": 3},
    "model": {"width": 32, "layers": 2, "heads": 2, "hidden": 32},
    "warm_start": {"steps": 400, "batch": 64},
    "rollout": {"prompts": 5, "group_size": 3, "lag": 1, "head": 5},
    "outliers": {"channels": 1, "scale": 16.0},
    "shadow": {"every": 2},
    "evaluation": {"prompts": 33},
    "checkpoint": {"every": 2, "keep": 9},
    "controls": {"ratio_reference": "sampler", "sampler_format": "nvfp4"},
}


def config_of(**changes: Any) -> RunConfig:
    sections = {
        name: BASE.get(name, {}) | value if isinstance(value, dict) else value for name, value in changes.items()
    }
    return validated(BASE | sections)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankProcesses]:
    LOADER.load(wait=True)
    with RankProcesses(2, tmp_path_factory.mktemp("ranks")) as processes:
        yield processes


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        torch.set_num_threads(1)
        yield folder


def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("alone", "both"):
        (tmp_path / name).mkdir()
    return tmp_path / "alone", tmp_path / "both"


def assert_same_steps(ours: list[StepRecord], theirs: list[StepRecord], rel: float = 1e-5) -> None:
    assert [(step.attempt, step.step, step.controls) for step in ours] == [
        (step.attempt, step.step, step.controls) for step in theirs
    ]
    for mine, other in zip(ours, theirs, strict=True):
        for name in ("reward_mean", "garbage_fraction", "length_mean", "staleness"):
            assert getattr(mine, name) == getattr(other, name), name
        for name in ("loss", "grad_norm", "entropy", "mismatch_std", "clip_low", "clip_high"):
            assert getattr(mine, name) == pytest.approx(getattr(other, name), rel=rel, abs=1e-7), name


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="nvfp4 rollouts"),
        pytest.param({"controls": {"train_format": "nvfp4"}}, id="nvfp4 training"),
        pytest.param(
            {
                "algorithm": "dapo",
                "model": {"gradient_checkpointing": True},
                "update": {"minibatches": 3, "passes": 2, "optimizer": "sgd", "lr": 0.05},
                "controls": {
                    "train_format": "nvfp4",
                    "ratio_reference": "recomputed",
                    "clip_mode": "calibrated",
                    "centering": True,
                    "importance": "mis",
                    "kl_coef": 0.1,
                },
            },
            id="everything at once",
        ),
        pytest.param({"algorithm": "dr_grpo", "controls": {"aggregation": "sequence_mean"}}, id="sequence mean"),
    ],
)
def test_two_processes_make_the_steps_of_one(
    two: RankProcesses, cache: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    config, (alone, both) = config_of(**changes), folders(tmp_path)
    wanted, result = train(config, alone, cache)
    (first, result_first), (second, result_second) = two.run(train, config, both, cache)
    assert any(step.loss != 0 for step in wanted)
    # A rounding in float32 may put a value on the other side of an edge of NVFP4's grid.
    assert_same_steps(first, wanted, rel=1e-3 if config.controls.train_format == "nvfp4" else 1e-5)
    assert_same_steps(second, first, rel=0)
    assert result_first == result_second == result
    assert (both / "contract.json").read_text() == (alone / "contract.json").read_text()
    assert len((both / "steps.jsonl").read_text().splitlines()) == len(wanted)
    for ours, theirs in zip(read_spool(both / "recorded"), read_spool(alone / "recorded"), strict=True):
        assert (ours.ranks, ours.failed_ranks, ours.dropped_total) == (2, 0, 0)
        assert (ours.tokens, set(ours.sketches)) == (theirs.tokens, set(theirs.sketches))
        for name, sketch in theirs.sketches.items():
            assert [sign.n for sign in ours.sketches[name].signs()] == [sign.n for sign in sketch.signs()]


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_two_processes_train_a_hugging_face_model_as_one_does(
    two: RankProcesses, cache: Path, tmp_path: Path, family: str
) -> None:
    """With a head that is tied to the embedding, merged layers that share a scale, and fused experts."""
    alone, both = folders(tmp_path)
    data = tiny_run(saved_model(family, tmp_path / "model"), recipe="nvfp4-rl", steps=2)
    config = validated(data | {"controls": {"train_format": "nvfp4"}})
    wanted, _ = train(config, alone, cache)
    (first, _), (second, _) = two.run(train, config, both, cache)
    assert_same_steps(first, wanted, rel=1e-3)
    assert_same_steps(second, first, rel=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"asynchrony": {"mode": "thread", "max_staleness": 2, "in_flight": "drop"}, "algorithm": "dapo"},
        {"asynchrony": {"mode": "process", "max_staleness": 1}},
    ],
)
def test_a_sampler_that_runs_ahead_is_the_first_ones_and_feeds_both(
    two: RankProcesses, cache: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    changes |= {"rollout": {"lag": 0}}
    (first, _), (second, _) = two.run(train, config_of(**changes, steps=4), tmp_path, cache)
    assert_same_steps(second, first, rel=0)
    assert max(step.staleness for step in first) <= changes["asynchrony"]["max_staleness"]
    (more, _), (others, _) = two.run(train, config_of(**changes), tmp_path, cache, None, True, 8)
    assert_same_steps(others, more, rel=0)
    assert [(step.attempt, step.step) for step in more] == [(8, 4), (8, 5)]


PATCH = OperatorAction(
    job="t", verb=OperatorVerb.PATCH_CONTROLS, issuer="me", reason="by hand", overrides={"clip_low": 0.1}
)
BACK = OperatorAction(
    job="t", verb=OperatorVerb.PATCH_CONTROLS, issuer="me", reason="it fell", overrides={"restore": "7:2"}
)


def test_controls_and_a_restore_reach_both_at_the_same_step(two: RankProcesses, cache: Path, tmp_path: Path) -> None:
    asked = {(7, 0): PATCH, (7, 3): BACK}
    (first, _), (second, _) = two.run(train, config_of(steps=8), tmp_path, cache, asked)
    assert_same_steps(second, first, rel=0)
    # What a person asks for after a step is told in the sum of the step after the next report.
    assert [step.controls.clip_low for step in first] == [0.2] * 3 + [0.1] * (len(first) - 3)
    numbers = [(step.attempt, step.step) for step in first]
    assert numbers == [(7, step) for step in range(6)] + [(8, step) for step in range(2, 8)]
    again = {step.step: step for step in first if step.attempt == 7}[2]
    assert first[6].reward_mean == again.reward_mean


def test_both_wait_in_a_pause_and_go_on_at_the_same_step(two: RankProcesses, cache: Path, tmp_path: Path) -> None:
    """With a restore that is told along with it, and carried out on both."""
    pause = replace(BACK, overrides={"paused": True, "clip_low": 0.1})
    config = config_of(steps=8, pause={"seconds": 0.5})
    (first, _), (second, _) = two.run(train, config, tmp_path, cache, {(7, 1): pause, (7, 4): BACK})
    assert_same_steps(second, first, rel=0)
    assert [(step.attempt, step.step) for step in first] == [(7, step) for step in range(7)] + [
        (8, step) for step in range(2, 8)
    ]
    assert [step.controls.clip_low for step in first] == [0.2] * 4 + [0.1] * (len(first) - 4)
    assert not any(step.controls.paused for step in first)


def test_a_checkpoint_that_one_rank_cannot_read_is_gone_back_to_by_none(
    two: RankProcesses, cache: Path, tmp_path: Path
) -> None:
    """The second is on a machine that has none of the files that the first writes."""
    (first, _), (second, _) = two.run(train, config_of(steps=8), tmp_path, cache, {(7, 2): BACK}, False, 7, True)
    assert_same_steps(second, first, rel=0)
    assert [(step.attempt, step.step) for step in first] == [(7, step) for step in range(8)]
    service = Service.open(tmp_path / "agent.db")
    entry = service.store.latest_summary("t")
    service.close()
    assert entry is not None
    (refusal,) = json.loads(entry.payload)["refusals"]
    assert refusal.startswith("restore: ")
    assert "there is no such checkpoint" in refusal


@pytest.mark.parametrize("weights", ["float32", "bfloat16"])
def test_a_checkpoint_of_one_is_one_of_two_and_the_other_way_round(
    two: RankProcesses, cache: Path, tmp_path: Path, weights: str
) -> None:
    config, (alone, both) = config_of(model={"weights": weights}), folders(tmp_path)
    half = config_of(model={"weights": weights}, steps=4)
    train(half, alone, cache)
    two.run(train, half, both, cache)
    states = [Checkpoints(folder / "checkpoints", 9).newest() for folder in (alone, both)]
    for name, value in states[0]["model"].items():
        torch.testing.assert_close(states[1]["model"][name], value, rtol=1e-4, atol=0.05)
    (first, _), (second, _) = two.run(train, config, alone, cache, None, True, 8)
    assert_same_steps(second, first, rel=0)
    assert [(step.attempt, step.step) for step in first] == [(8, 4), (8, 5)]
    one, _ = train(config, both, cache, None, True, 8)
    assert [(step.attempt, step.step) for step in one] == [(8, 4), (8, 5)]
    if weights == "float32":
        whole, _ = train(config, tmp_path, cache)
        for steps in (first, one):
            for mine, other in zip(steps, whole[4:], strict=True):
                assert (mine.reward_mean, mine.length_mean) == (other.reward_mean, other.length_mean)
                assert mine.loss == pytest.approx(other.loss, rel=1e-5, abs=1e-7)
