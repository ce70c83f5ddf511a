"""Updates that have left the batch they are made on, and that no clip bound holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.signals import SIGNALS
from trimtab.agent.state import Mode, State
from trimtab.agent.values import replace
from trimtab.hooks.controls import Capabilities, ClipBounds, Controls, Liveness
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.memory import MemoryTransport

LIVE = Capabilities(controls=dict.fromkeys(("clip_low", "clip_high", "lr_scale"), Liveness.LIVE))
LOOSE = Controls(clip_low=1.0, clip_high=10.0)


def step(
    index: int, controls: Controls, log_ratio: np.ndarray[Any, Any], bounds: ClipBounds | None = None
) -> StepSummary:
    """A step of 200 tokens: A < 0 on the first half, A > 0 on the second."""
    transport = MemoryTransport()
    emitter = Emitter(transport, job="run", attempt=1, controls=controls, capabilities=LIVE)
    old = np.full((2, 100), -12.0)
    emitter.observe(
        train_logprobs=old + log_ratio.reshape(2, 100),
        old_logprobs=old,
        advantages=np.array([-1.0, 1.0]),
        loss_mask=np.ones((2, 100)),
    )
    emitter.end_step(step=index, clip_bounds=bounds, staleness=3.0)
    emitter.close()
    return transport.sent[0]


FAR = np.concatenate(
    [np.full(10, -4.0), np.full(10, 4.0), np.zeros(80), np.full(5, 2.0), np.full(5, -2.0), np.zeros(90)]
)
"""Ten punished tokens far down, and five rewarded far up, where they are pushed; as many the other way."""


@pytest.mark.parametrize(
    ("controls", "bounds", "share"),
    [
        (LOOSE, None, 15 / 200),
        (Controls(clip_low=1.0, clip_high=0.28), None, 10 / 200),
        (Controls(clip_low=0.2, clip_high=10.0), None, 5 / 200),
        (Controls(), None, 0.0),
        (Controls(clip_mode="calibrated"), ClipBounds(low=-1.2, high=1.2), 0.0),
        (Controls(clip_mode="calibrated"), ClipBounds(low=-4.5, high=1.2), 10 / 200),
    ],
)
def test_the_share_of_tokens_that_nothing_holds(controls: Controls, bounds: ClipBounds | None, share: float) -> None:
    assert SIGNALS["overreach"](step(0, controls, FAR, bounds)) == pytest.approx(share)


@pytest.mark.parametrize("objective", ["reinforce", "gspo", "cispo"])
def test_it_is_about_losses_that_clip_a_token(objective: Any) -> None:
    assert SIGNALS["overreach"](step(0, LOOSE.overlaid({"objective": objective}), FAR)) is None


def test_the_bounds_are_tightened_in_answer() -> None:
    state = replace(RunState.initial("run"), mode=Mode.AUTO)
    commands = []
    for index in range(12):
        outcome = advance(AgentConfig(), state, step(index, LOOSE, FAR))
        state = outcome.state
        commands.append(None if outcome.command is None else outcome.command.overrides)
    assert state.verdicts["overreach"].state is State.WARN
    assert commands[-1] == {"clip_low": 0.2, "clip_high": 0.28}
    assert [rung.remedy for rung in state.ladder.rungs] == ["tighter_clip"]


def test_usual_bounds_never_alarm_for_what_they_hold() -> None:
    state = replace(RunState.initial("run"), mode=Mode.AUTO)
    for index in range(12):
        state = advance(AgentConfig(), state, step(index, Controls(), FAR / 5)).state
    assert state.verdicts["overreach"].state is State.OK
    assert not state.ladder.rungs


def test_steps_are_halved_where_the_ratio_spreads_under_usual_bounds() -> None:
    state = replace(RunState.initial("run"), mode=Mode.AUTO)
    for index in range(12):
        state = advance(AgentConfig(), state, step(index, Controls(), FAR)).state
    assert state.verdicts["overreach"].state is State.WARN
    assert state.verdicts["overreach"].message == "the updates on one batch spread the ratio by 1.34 nats (limit 0.5)"
    assert [rung.remedy for rung in state.ladder.rungs] == ["smaller_steps"]
    assert state.overrides == {"lr_scale": 0.5}


def test_the_spread_of_a_ratio_against_the_sampler_is_no_overreach() -> None:
    state = RunState.initial("run")
    for index in range(12):
        state = advance(AgentConfig(), state, step(index, Controls(ratio_reference="sampler"), FAR)).state
    assert state.verdicts["overreach"].state is State.OK
