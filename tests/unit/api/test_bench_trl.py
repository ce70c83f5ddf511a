"""What is measured of a TRL run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from trimtab.api.bench import trl_task
from trimtab.api.bench.rescue import TASK, UPDATES, Rescue, trainer
from trimtab.api.bench.tiny import tiny_qwen3
from trimtab.api.bench.trl_hook import bench_trl_hook


@pytest.fixture(autouse=True)
def untrained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The warm start takes a minute; here the cache holds the weights before it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = trl_task.warm_path(TASK)
    path.parent.mkdir(parents=True)
    torch.save(tiny_qwen3(trl_task.SHAPE).state_dict(), path)


@pytest.mark.filterwarnings("ignore")  # the peer's own
def test_two_trainers_take_turns_one_with_the_adapter() -> None:
    pairs: list[None] = []
    cost = bench_trl_hook(3, lambda: pairs.append(None))
    assert len(pairs) == 5  # two of them warm up
    assert cost.step_ms.median > 0
    assert cost.share.p10 <= cost.share.median <= cost.share.p90


@pytest.mark.filterwarnings("ignore")
def test_the_runs_differ_in_their_clip_alone(tmp_path: Path) -> None:
    made: list[Any] = [trainer(tmp_path, clip=clip, seed=1, generations=3) for clip in (0.2, 10.0)]
    arguments = [vars(each.args) for each in made]
    differ = {name for name in arguments[0] if str(arguments[0][name]) != str(arguments[1][name])}
    assert differ == {"epsilon"}
    assert made[0].args.max_steps == 3 * UPDATES
    assert (made[0].epsilon_low, made[1].epsilon_high) == (0.2, 10.0)


def test_the_reward_is_the_task_s_own() -> None:
    assert trl_task.reward(["12345678="], ["13605186"]) == [1.0]
    assert trl_task.reward(["12345678="], ["13605187"]) == [0.0]
    assert trl_task.reward(["12345678="], [""]) == [0.0]
    assert TASK.digits == 8


def test_what_is_kept_is_a_share_of_the_healthy_run() -> None:
    assert Rescue(seed=0, healthy=0.9, alone=0.1, attended=0.45, remedies=()).kept == 0.5
