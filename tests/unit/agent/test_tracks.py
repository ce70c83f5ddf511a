"""Windows and baselines where a step is one of several passes over the same rollouts."""

import math
from dataclasses import replace

import numpy as np
import pytest
from agent_runs import step_summary

from trimtab.agent.advance import advance
from trimtab.agent.baselines import Baseline, BaselineSettings
from trimtab.agent.config import AgentConfig
from trimtab.agent.reading import Reading
from trimtab.agent.run_state import RunState
from trimtab.agent.signals.step import Step
from trimtab.agent.tracks import MAX_PASSES, Track, span

SETTINGS = BaselineSettings(warmup=10)


@pytest.mark.parametrize(
    ("window", "cycle", "steps"), [(5, 1, 5), (5, 2, 6), (5, 4, 8), (5, 5, 5), (5, 8, 8), (5, 16, 16)]
)
def test_a_window_spans_whole_cycles(window: int, cycle: int, steps: int) -> None:
    assert span(window, cycle) == steps


def test_the_mean_of_a_saw_is_the_same_wherever_it_ends() -> None:
    track, means = Track(), []
    for step in range(40):
        track = track.seen(0.1 * (step % 4), 5, step % 4)
        means.append(track.mean(5))
    assert means[:4] == [None] * 4
    assert means[8:] == pytest.approx([0.15] * 32)
    assert track.peak == pytest.approx(0.15)


def test_what_is_measured_once_a_generation_has_a_window_of_generations() -> None:
    track = Track()
    for step in range(48):
        track = track.seen(float(step // 8) if step % 8 == 0 else None, 5, step % 8 // 2)
    assert track.recent == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert (track.cycle, track.gap, track.age) == (1, 8, 7)


def test_such_a_mean_stands_until_the_next_generation_is_due() -> None:
    def reading(track: Track) -> Reading:
        return Reading(step=Step(step_summary(0)), tracks={"reward_mean": track}, window=5)

    track = Track()
    for step in range(41):
        track = track.seen(0.5 if step % 8 == 0 else None, 5)
    for age in range(9):
        assert (track.age, reading(track).mean("reward_mean")) == (age, 0.5)
        track = track.seen(None, 5)
    assert reading(track).mean("reward_mean") is None


def test_each_pass_has_its_own_baseline() -> None:
    track = Track()
    for step in range(40):
        track = track.seen(float(step % 4), 5, step % 4).learnt(SETTINGS, step % 4)
    for passed in range(4):
        anchor = track.of_pass(passed).anchor
        assert anchor is not None
        assert anchor.location == passed
    assert track.of_pass(4) == Baseline()
    assert track.forgotten().of_pass(0) == track.forgotten().of_pass(3) == Baseline()


def test_passes_beyond_the_sixteenth_share_a_baseline() -> None:
    track = Track()
    for passed in range(40):
        track = track.seen(1.0, 5, passed).learnt(SETTINGS, passed)
    assert track.cycle == MAX_PASSES
    assert len(track.later) == MAX_PASSES - 1
    assert track.of_pass(MAX_PASSES - 1).anchor == track.of_pass(39).anchor
    assert track.of_pass(39).anchor is not None
    assert track.of_pass(3).anchor is None


def test_a_saw_of_passes_is_no_drift_and_a_drift_on_top_of_it_is_seen() -> None:
    """Signs apart by 0.02 nats more with each of four passes; from step 400 by another 0.03 in every one."""
    rng, state, config = np.random.default_rng(0), RunState.initial("run"), AgentConfig()
    states = []
    for step in range(420):
        passed, extra = step % 4, 0.03 if step >= 400 else 0.0
        tokens = rng.normal(-0.02 * passed - extra, 0.02 + 0.02 * passed, 2000), rng.normal(0, 0.02, 2000)
        summary = replace(step_summary(step, update=tokens, entropy=0.4), pass_index=passed)
        state = advance(config, state, summary).state
        states.append(state.verdicts["asymmetry"].state.value)
    assert set(states[120:400]) == {"ok"}
    assert "warn" in states[400:408]


def test_a_window_with_a_value_that_is_not_finite_has_no_finite_mean_and_no_peak() -> None:
    track = Track()
    for value in (1.0, math.nan, 1.0, 1.0, 1.0):
        track = track.seen(value, 5)
    assert math.isnan(track.mean(5) or 0.0)
    assert track.peak is None
