"""An entropy that leaves where it was, and what buys reward."""

import math

import numpy as np
import pytest
from agent_verdicts import scalars_of, states
from hypothesis import given
from hypothesis import strategies as st

from trimtab.agent.lagged import Lagged
from trimtab.agent.state import State


def wandering(seed: int, steps: int) -> np.ndarray:
    """An AR(1) series of coefficient 0.9 and unit variance."""
    noise, values, value = np.random.default_rng(seed).standard_normal(steps), [], 0.0
    for each in noise:
        value = 0.9 * value + math.sqrt(1 - 0.81) * each
        values.append(value)
    return np.array(values)


@pytest.mark.parametrize("level", [0.35, 2.0])
@pytest.mark.parametrize(("factor", "within"), [(3.0, 30), (0.1, 40)])
def test_an_entropy_that_leaves_without_a_change_of_reward(level: float, factor: float, within: int) -> None:
    share = np.clip((np.arange(300) - 199) / 200, 0, 1)
    for seed in range(3):
        entropy = level * np.exp(0.03 * wandering(seed, 300)) * (1 + (factor - 1) * share)
        rewards = np.random.default_rng(seed).binomial(64, 0.5, 300) / 64
        seen = states("entropy_trend", scalars_of(200 + within, entropy=entropy, reward_mean=rewards))
        assert 200 < seen.index(State.WARN) < 200 + within


@pytest.mark.parametrize("top", [0.99, 0.7])
def test_a_fall_that_buys_reward_is_ok(top: float) -> None:
    t, rng = np.arange(200), np.random.default_rng(3)
    entropy = (0.37 * np.exp(-t / 60) + 0.012) * rng.lognormal(0, 0.03, 200)
    rewards = rng.binomial(192, top - (top - 0.35) * np.exp(-t / 60)) / 192
    assert set(states("entropy_trend", scalars_of(200, entropy=entropy, reward_mean=rewards))[72:]) == {State.OK}


def test_a_slow_fall_is_ok() -> None:
    share = np.clip((np.arange(1000) - 199) / 800, 0, 1)
    entropy = 0.35 * np.random.default_rng(0).lognormal(0, 0.02, 1000) * (1 - 0.7 * share)
    assert State.WARN not in states("entropy_trend", scalars_of(1000, entropy=entropy, reward_mean=0.5))


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=120), delay=st.integers(5, 60))
def test_a_lagged_baseline_knows_nothing_of_the_latest_values(values: list[float], delay: int) -> None:
    lagged, early = Lagged(), Lagged()
    for value in values:
        lagged = lagged.updated(value, delay=delay)
    for value in values[: max(len(values) - delay, 0)]:
        early = early.updated(value, delay=0)
    assert lagged.baseline == early.baseline
    assert lagged.updated(math.nan, delay=delay) == lagged


def test_one_garbage_batch_is_no_trend() -> None:
    entropy = 0.35 * np.random.default_rng(1).lognormal(0, 0.02, 100)
    entropy[90:92] *= 2
    assert State.WARN not in states("entropy_trend", scalars_of(100, entropy=entropy, reward_mean=0.5))
