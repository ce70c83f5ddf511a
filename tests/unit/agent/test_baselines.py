"""Baselines learn, resist, and stay put where they must."""

import math
from dataclasses import replace

import numpy as np
import pytest
from agent_runs import step_summary

from trimtab.agent.advance import advance
from trimtab.agent.baselines import Baseline, BaselineSettings
from trimtab.agent.checks import ConfigError
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState

SETTINGS = BaselineSettings()


def learnt(values: np.ndarray, settings: BaselineSettings = SETTINGS, start: Baseline | None = None) -> Baseline:
    baseline = start or Baseline()
    for x in values:
        baseline = baseline.updated(float(x), settings)
    return baseline


def test_nothing_is_said_before_the_warm_up_is_over() -> None:
    values = np.random.default_rng(0).normal(5, 2, 30)
    before = learnt(values[:29])
    assert before.average is None
    assert before.anchor is None
    after = before.updated(float(values[29]), SETTINGS)
    assert after.anchor == after.average
    assert after.anchor is not None
    assert after.anchor.location == float(np.median(values))
    assert after.early == ()


@pytest.mark.parametrize("seed", range(5))
def test_the_level_of_normal_noise_is_its_mean_and_standard_deviation(seed: int) -> None:
    baseline = learnt(np.random.default_rng(seed).normal(-3, 0.5, 2000))
    assert baseline.average is not None
    assert baseline.average.location == pytest.approx(-3, abs=0.25)
    assert baseline.average.scale == pytest.approx(0.5, rel=0.3)


def test_the_average_has_an_effective_window_of_fifty_steps() -> None:
    start = learnt(np.random.default_rng(1).normal(0, 1, 30))
    assert start.average is not None
    step = replace(start, average=replace(start.average, location=0.0, scale=1.0))
    # Inside the cut, the weights are those of an exponential average with a = 2 / 51: 1 - (1 - a)^50 = 86.5 % after 50.
    fixed = step
    for _ in range(50):
        assert fixed.average is not None
        moved = fixed.updated(1.0, SETTINGS)
        assert moved.average is not None
        fixed = replace(moved, average=replace(moved.average, scale=1.0))
    assert fixed.average is not None
    assert fixed.average.location == pytest.approx(1 - (1 - 2 / 51) ** 50)


@pytest.mark.parametrize("wild", [1e3, -1e9, 1e300])
def test_one_garbage_batch_moves_the_average_by_an_eighth_of_a_sd_and_the_anchor_not_at_all(wild: float) -> None:
    before = learnt(np.random.default_rng(2).normal(0, 1, 200))
    after = before.updated(wild, SETTINGS)
    assert before.average is not None
    assert after.average is not None
    assert abs(after.average.location - before.average.location) <= 0.12 * before.average.scale
    assert after.average.scale <= 1.12 * before.average.scale
    assert after.anchor == before.anchor


def test_garbage_in_the_warm_up_is_outvoted() -> None:
    values = np.random.default_rng(3).normal(0, 1, 30)
    values[[4, 11, 20]] = 1e6
    anchor = learnt(values).anchor
    assert anchor is not None
    assert abs(anchor.location) < 0.7
    assert anchor.scale < 2.5


def test_non_finite_values_are_counted_and_change_nothing() -> None:
    before = learnt(np.random.default_rng(4).normal(0, 1, 100))
    after = learnt(np.array([math.nan, math.inf, -math.inf]), start=before)
    assert after == replace(before, nonfinite=3)


def test_a_slow_ramp_drags_the_average_but_not_the_anchor() -> None:
    noise = np.random.default_rng(5).normal(0, 1, 1100)
    flat = learnt(noise[:100])
    ramped = learnt(noise[100:] + np.linspace(0, 20, 1000), start=flat)
    assert ramped.average is not None
    assert ramped.average.location > 15
    assert ramped.anchor == flat.anchor


def test_the_anchor_is_made_of_the_first_hundred_values() -> None:
    values = np.random.default_rng(6).normal(4, 1, (200, 130))
    errors = {}
    for n in (30, 100, 130):
        found = [learnt(row[:n]).anchor for row in values]
        errors[n] = np.std([level.location - 4 for level in found if level is not None])
        assert np.median([level.scale for level in found if level is not None]) == pytest.approx(1, abs=0.1)
    assert errors[30] == pytest.approx(0.23, abs=0.03)
    assert errors[100] == pytest.approx(0.13, abs=0.03)
    assert errors[130] == errors[100]


def test_a_constant_signal_has_a_floor_under_its_scale() -> None:
    anchor = learnt(np.full(30, 200.0)).anchor
    assert anchor is not None
    assert anchor.scale == 2.0
    assert anchor.distance(203.0) == 1.5


@pytest.mark.parametrize(
    ("field", "value"),
    [("window", 49), ("warmup", 9), ("settle", -1), ("clip", 0.5), ("floor_relative", -1.0), ("floor_absolute", 0.0)],
)
def test_bad_settings_name_the_field(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"baseline\.{field}: {value}"):
        replace(SETTINGS, **{field: value})


def test_the_extremes_of_the_average_are_kept_from_the_anchor_on() -> None:
    settings = BaselineSettings(settle=30)
    learnt, averages = Baseline(), []
    for x in [*([1.0] * 30), *([5.0] * 60), *([-3.0] * 120)]:
        learnt = learnt.updated(x, settings)
        if learnt.average is not None:
            averages.append(learnt.average)
    assert learnt.anchor == averages[0]
    assert learnt.highest == max(averages, key=lambda level: level.location)
    assert learnt.lowest == min(averages, key=lambda level: level.location)
    assert learnt.highest.location > 3 > 0 > learnt.lowest.location


def test_a_further_pass_says_nothing_new_of_the_rollouts() -> None:
    config, state = AgentConfig(), RunState.initial("run")
    for step in range(20):
        summary = step_summary(step, update=([0.0] * 200, [0.0] * 200), scalars={"reward_mean": float(step // 4)})
        state = advance(config, state, replace(summary, pass_index=step % 4)).state
    assert state.tracks["reward_mean"].recent == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert state.tracks["reward_mean"].age == 3
