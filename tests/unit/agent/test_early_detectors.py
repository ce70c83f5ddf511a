"""Exact verdicts of the detectors of early signs: jump, slope, drift, shift, fixed limits."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from agent_runs import step_summary
from agent_verdicts import CONFIG, final, scalars_of, states, verdict
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import theilslopes

from trimtab.agent.checks import ConfigError
from trimtab.agent.config import with_settings
from trimtab.agent.detectors.drift import CHANNELS, Drift
from trimtab.agent.detectors.slope import HALF, WINDOW, fitted, time_to
from trimtab.agent.state import State
from trimtab.hooks.records import StepSummary

N = 1000


# Jump.


def spread(std: float, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(0, std, N), rng.normal(0, std, N)


@pytest.mark.parametrize("before", [1, 40])
def test_a_gradient_two_decades_off_is_seen_in_its_first_step(before: int) -> None:
    norms = [0.1] * before + [11.0]
    found = verdict("jump", scalars_of(before + 1, grad_norm=norms))
    assert found.state is State.CRITICAL
    assert found.message == "grad_norm jumped from 0.1 to 11"


@pytest.mark.parametrize("norms", [[0.1, 9.0], [0.0, 0.0, 5.0], [0.01, 0.5, 11.0]])
def test_less_than_two_decades_over_the_largest_is_no_jump(norms: list[float]) -> None:
    assert verdict("jump", scalars_of(len(norms), grad_norm=norms)).state is State.OK


def test_a_jump_alarms_until_the_value_is_back() -> None:
    seen = states("jump", scalars_of(9, grad_norm=[0.1, 0.1, 20, 30, 25, 0.2, 0.1, 0.1, 9]))
    assert seen == [State.OK] * 2 + [State.CRITICAL] * 3 + [State.OK] * 4


@pytest.mark.parametrize(("after", "state"), [(3.0, State.CRITICAL), (0.5, State.OK)])
def test_a_jump_of_the_mismatch(after: float, state: State) -> None:
    records = [step_summary(i, mismatch=spread(0.02, i)) for i in range(4)]
    records.append(step_summary(4, mismatch=spread(after)))
    assert verdict("jump", records).state is state


def test_one_wild_token_is_no_jump() -> None:
    records = [step_summary(i, mismatch=spread(0.2, i)) for i in range(4)]
    negative, positive = spread(0.2, 9)
    records.append(step_summary(4, mismatch=(np.append(negative, 12.0), positive)))
    assert verdict("jump", records).evidence["mismatch_kl"] > 50
    assert verdict("jump", records).state is State.OK


@pytest.mark.parametrize(("losses", "state"), [([0.02, -0.01, -3.0], State.CRITICAL), ([1e-9, 0.5], State.OK)])
def test_a_jump_of_the_loss(losses: list[float], state: State) -> None:
    assert verdict("jump", scalars_of(len(losses), loss=losses)).state is state


# Slope.


def test_a_line_to_a_limit_is_foretold_before_it_is_crossed() -> None:
    seen = states("slope", scalars_of(80, token_mult_prob_error=1.01 + 0.0005 * np.arange(80)))
    assert seen.index(State.WARN) == 40
    found = verdict("slope", scalars_of(41, token_mult_prob_error=1.01 + 0.0005 * np.arange(41)))
    assert found.message == "token_mult_prob_error 1.03 moves by +0.0005 a step and reaches 1.05 in 40 steps"


@pytest.mark.parametrize("series", [np.full(60, 1.04), 1.049 - 0.0005 * np.arange(60), 1.2 - 0.003 * np.arange(60)])
def test_what_does_not_head_for_its_limit_is_ok(series: np.ndarray) -> None:
    assert set(states("slope", scalars_of(60, token_mult_prob_error=series))[WINDOW - 1 :]) == {State.OK}


@pytest.mark.parametrize("seed", range(3))
def test_seven_wild_values_do_not_turn_a_slope(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = 1.0 + 0.01 * np.arange(WINDOW) + rng.normal(0, 0.001, WINDOW)
    values[rng.choice(HALF, 5, replace=False)] = 1e6
    line = fitted(tuple(values.tolist()))
    assert line.slope == pytest.approx(0.01, rel=0.25)
    assert line.level == pytest.approx(1.29, abs=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_the_slope_is_near_that_of_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = 0.2 + 0.003 * np.arange(WINDOW) + rng.normal(0, 0.01, WINDOW)
    assert fitted(tuple(values.tolist())).slope == pytest.approx(theilslopes(values).slope, abs=0.0005)


@given(start=st.floats(0.1, 10), slope=st.floats(0.001, 1), away=st.floats(0.1, 50))
def test_the_time_to_a_limit_is_exact_on_a_line(start: float, slope: float, away: float) -> None:
    line = fitted(tuple(start + slope * i for i in range(WINDOW)))
    limit = line.level + slope * away
    assert time_to(line, limit, upward=True) == pytest.approx(away, rel=1e-6)
    assert time_to(line, limit, upward=False) == math.inf


# Drift.


def test_every_channel_has_a_memory() -> None:
    assert set(CHANNELS) == {each.name for each in fields(Drift)}


@pytest.mark.parametrize(
    ("name", "level", "after", "state"),
    [
        ("grad_norm", 0.07, 0.6, State.WARN),
        ("grad_norm", 0.07, 0.3, State.OK),
        ("grad_norm", 0.07, 0.015, State.WARN),
        ("length_mean", 1000, 1800, State.WARN),
        ("length_mean", 1000, 400, State.WARN),
        ("length_mean", 1000, 1400, State.OK),
    ],
)
def test_a_level_that_is_left_for_good(name: str, level: float, after: float, state: State) -> None:
    noise = np.random.default_rng(0).lognormal(0, 0.2, 90)
    series = np.r_[np.full(60, level), np.full(30, after)] * noise
    found = verdict("drift", scalars_of(90, reward_mean=0.5, **{name: series}))
    assert found.state is state


def test_a_gradient_that_shrinks_as_the_reward_rises_is_no_drift() -> None:
    norms = np.r_[np.full(60, 0.07), np.full(30, 0.01)] * np.random.default_rng(0).lognormal(0, 0.2, 90)
    rewards = np.r_[np.full(60, 0.5), np.full(30, 0.9)]
    assert verdict("drift", scalars_of(90, grad_norm=norms, reward_mean=rewards)).state is State.OK


def test_two_wild_steps_in_five_are_no_drift() -> None:
    norms = np.full(90, 0.07)
    norms[60::5], norms[61::5] = 0.7, 0.6
    assert set(states("drift", scalars_of(90, grad_norm=norms, reward_mean=0.5))[30:]) == {State.OK}


@pytest.mark.parametrize(("std", "state"), [(0.08, State.WARN), (0.05, State.OK)])
def test_a_mismatch_that_grows_below_every_limit(std: float, state: State) -> None:
    records = [step_summary(i, mismatch=spread(0.025 if i < 50 else std, i)) for i in range(80)]
    assert verdict("drift", records).state is state


# Shift.


@pytest.mark.parametrize(("by", "state"), [(0.2, State.WARN), (-0.2, State.WARN), (0.0, State.OK)])
def test_signs_that_move_apart_either_way(by: float, state: State) -> None:
    rng = np.random.default_rng(0)
    records = [
        step_summary(i, update=(rng.normal(by * (i >= 40), 0.04, 3000), rng.normal(0, 0.04, 3000)), entropy=0.4)
        for i in range(44)
    ]
    found = verdict("shift", records)
    assert found.state is state
    assert found.evidence["sampling"] == pytest.approx(math.sqrt(math.log(2e6) / (2 * 3000 * 5 / 10)))


def test_what_widens_both_signs_is_no_shift() -> None:
    rng = np.random.default_rng(1)
    records = []
    for i in range(60):
        scale = 0.04 * (1 + 2 * (i >= 40))
        tokens = rng.normal(0, scale, 3000), rng.normal(0, scale, 3000)
        records.append(step_summary(i, update=tokens, entropy=0.4))
    assert set(states("shift", records)[30:]) == {State.OK}


def test_a_new_regime_has_a_new_reference() -> None:
    rng = np.random.default_rng(2)
    records = [
        step_summary(
            i,
            update=(rng.normal(0.2 * (i >= 40), 0.04, 3000), rng.normal(0, 0.04, 3000)),
            entropy=0.4 if i < 36 else 0.1,
        )
        for i in range(90)
    ]
    seen = states("shift", records)
    assert seen[45] is State.INCONCLUSIVE
    assert set(seen[80:]) == {State.OK}


# Fixed limits.


def test_a_sample_that_a_few_tokens_carry() -> None:
    negative, positive = spread(0.02)
    records = [step_summary(i, mismatch=(np.r_[negative, [6.0] * 3], positive)) for i in range(6)]
    found = verdict("limits", records)
    assert found.state is State.WARN
    assert found.evidence["ess"] < 0.3


def test_two_steps_of_a_wild_token_are_within_the_limits() -> None:
    negative, positive = spread(0.02)
    records = [step_summary(i, mismatch=(np.r_[negative, [15.0] * (i in (3, 5))], positive)) for i in range(7)]
    assert verdict("limits", records).state is State.OK


NOTE = with_settings(CONFIG, {"detectors.limits.rules": "note"})


def noted(**last: Any) -> list[StepSummary]:
    entropies = 0.4 + 0.01 * np.sin(np.arange(26))
    entropies[25] = last.get("entropy", entropies[25])
    garbage = [0.003] * 25 + [last.get("garbage_fraction", 0.003)]
    shift = last.get("asymmetry", 0.0)
    rng = np.random.default_rng(0)
    return [
        replace(
            step_summary(i, update=(rng.normal(shift, 0.04, N), rng.normal(0, 0.04, N)), entropy=float(entropies[i])),
            scalars={"garbage_fraction": garbage[i]},
        )
        for i in range(26)
    ]


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ({"entropy": 0.45}, "entropy 0.45"),
        ({"garbage_fraction": 0.06}, "garbage_fraction 0.06"),
        ({"asymmetry": -0.3}, "asymmetry 0."),
    ],
)
def test_the_notes_table_by_name(last: dict[str, float], told: str) -> None:
    found = verdict("limits", noted(**last), NOTE)
    assert found.state is State.WARN
    assert found.message.startswith(f"beyond fixed limits: {told}")
    assert verdict("limits", noted(), NOTE).state is State.OK
    assert verdict("limits", noted(**last)).state is not State.WARN


def test_the_default_rules_remember_nothing() -> None:
    assert final(noted()).detectors.limits.entropies == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limits.rules", "notes"),
        ("limits.ess", 1.0),
        ("jump.factor", 1.0),
        ("slope.horizon", 0.0),
        ("drift.spread", 1.0),
        ("shift.margin", 0.0),
        ("entropy_trend.delay", 4),
    ],
)
def test_bad_settings_name_the_field(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"detectors\.{name}: {value!r}"):
        with_settings(CONFIG, {f"detectors.{name}": value})
