"""What steps cost beside others: each is really run, on less than the bench does."""

from __future__ import annotations

import pytest

from trimtab.api.bench.corrections import _overhead
from trimtab.api.bench.tiny import TinyShape
from trimtab.hooks.controls import Controls
from trimtab.trainer.config import RunConfig
from trimtab.trainer.sections import RolloutConfig, ShadowConfig, UpdateConfig
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
