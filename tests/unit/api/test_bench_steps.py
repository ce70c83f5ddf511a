"""What steps cost beside others: each is really run, on less than the bench does."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.api.bench.asynchrony import MODES, WORKLOAD, bench_asynchrony
from trimtab.api.bench.corrections import _overhead
from trimtab.api.bench.tiny import TinyShape
from trimtab.hooks.controls import Controls
from trimtab.trainer.config import RunConfig
from trimtab.trainer.sections import (
    DecoderConfig,
    RolloutConfig,
    RunningSumConfig,
    ShadowConfig,
    UpdateConfig,
    WarmStartConfig,
)
from trimtab.trainer.tasks.running_sum import RunningSum


def test_a_correction_is_measured_against_the_same_run_without_it() -> None:
    small = {"rollout": RolloutConfig(prompts=2, group_size=2, head=4), "update": UpdateConfig(minibatches=1)}
    without = RunConfig(**small, shadow=ShadowConfig(every=0), controls=Controls())
    with_it = RunConfig(**small, shadow=ShadowConfig(every=0), controls=Controls(centering=True))
    turns: list[None] = []
    cost = _overhead("centering", without, with_it, every=2, steps=4, on_step=lambda: turns.append(None))
    assert len(turns) == 7  # three of them warm up
    assert cost.overhead_p10 <= cost.overhead <= cost.overhead_p90
    assert cost.amortised == cost.overhead / 2
    assert cost.milliseconds > 0


@pytest.mark.filterwarnings("ignore")  # the peer's own
def test_the_peer_takes_turns_with_ours_on_the_same_workload() -> None:
    pytest.importorskip("trl")
    from trimtab.api.bench.trl import Workload, _cost

    workload = Workload(
        name="small",
        shape=TinyShape(layers=1, width=32, hidden=32, vocabulary=16),
        prompts=2,
        group_size=2,
        task=RunningSum(digits=3),
    )
    turns: list[None] = []
    cost = _cost(workload, 4, lambda: turns.append(None))
    assert len(turns) == 6  # two of them warm up
    assert cost.workload == "small"
    assert 0 < cost.ratio_p10 <= cost.ratio <= cost.ratio_p90


def test_every_mode_of_sampling_is_timed_on_the_same_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small = WORKLOAD.model_copy(
        update={
            "task": RunningSumConfig(digits=2),
            "model": DecoderConfig(width=16, layers=1, heads=1, hidden=16),
            "warm_start": WarmStartConfig(steps=1),
            "rollout": RolloutConfig(prompts=2, group_size=2),
        }
    )
    blocks: list[None] = []
    modes = bench_asynchrony(2, small, lambda: blocks.append(None))
    assert len(blocks) == 2
    assert [mode.mode for mode in modes] == [mode.name for mode in MODES]
    assert modes[0].ratio == modes[0].ratio_p10 == modes[0].ratio_p90 == 1
    for mode in modes:
        assert mode.steps_per_second > 0
        assert 0 < mode.trainer_idle < 1
        assert 0 <= mode.sampler_idle < 1
