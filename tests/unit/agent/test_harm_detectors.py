"""Exact verdicts of the detectors of harm: entropy, garbage, reward."""

import math
from dataclasses import replace

import numpy as np
import pytest
from agent_verdicts import CONFIG, final, scalars_of, verdict

from trimtab.agent.advance import advance
from trimtab.agent.config import with_settings
from trimtab.agent.run_state import RunState
from trimtab.agent.state import State
from trimtab.hooks.records import StepSummary

# Entropy.

FALLING = 0.37 * np.exp(-np.arange(140) / 30) + 0.012
RISING_REWARD = 0.99 - 0.64 * np.exp(-np.arange(140) / 12)


def test_a_healthy_fall_of_entropy_is_ok_throughout() -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, 140)
    records = scalars_of(140, entropy=FALLING, reward_mean=RISING_REWARD + noise)
    state = RunState.initial("run")
    seen = []
    for record in records:
        state = advance(CONFIG, state, record).state
        seen.append(state.verdicts["entropy"].state)
    assert set(seen[5:]) == {State.OK}


def test_a_fall_without_progress_of_the_reward_is_a_collapse() -> None:
    found = verdict("entropy", scalars_of(60, entropy=np.geomspace(0.8, 0.02, 60), reward_mean=0.4))
    assert found.state is State.WARN


def test_a_policy_that_is_deterministic_already_cannot_collapse() -> None:
    found = verdict("entropy", scalars_of(60, entropy=np.geomspace(0.04, 0.001, 60), reward_mean=0.99))
    assert found.state is State.OK


def rise(reward_to: float) -> list[StepSummary]:
    rng = np.random.default_rng(1)
    entropy = np.r_[np.full(50, 0.3), np.linspace(0.3, 0.9, 50)] + rng.normal(0, 0.01, 100)
    return scalars_of(100, entropy=entropy, reward_mean=np.r_[np.full(50, 0.6), np.linspace(0.6, reward_to, 50)])


@pytest.mark.parametrize(("reward_to", "state"), [(0.3, State.WARN), (0.6, State.OK)])
def test_a_rise_needs_harm(reward_to: float, state: State) -> None:
    found = verdict("entropy", rise(reward_to))
    assert found.state is state
    assert "ris" in found.message


def test_a_rise_without_a_reward_to_judge_it_by_is_inconclusive() -> None:
    records = [replace(record, scalars={}) for record in rise(0.6)]
    assert verdict("entropy", records).state is State.INCONCLUSIVE


# Garbage and reward.


@pytest.mark.parametrize(("fraction", "state"), [(0.06, State.WARN), (0.049, State.OK)])
def test_garbage(fraction: float, state: State) -> None:
    assert verdict("garbage", scalars_of(6, garbage_fraction=fraction)).state is state


def test_one_garbage_batch_is_outvoted_by_its_window() -> None:
    assert verdict("garbage", scalars_of(6, garbage_fraction=[0, 0, 0, 0.9, 0, 0])).state is State.OK


@pytest.mark.parametrize(
    ("rewards", "state"),
    [
        ([0.35] * 6 + [0.2] * 6, State.CRITICAL),
        ([0.35] * 6 + [0.25] * 6, State.OK),
        ([0.05] * 6 + [0.02] * 6, State.OK),
        ([-1.0] * 6 + [-1.5] * 6, State.CRITICAL),
        ([-1.0] * 6 + [-1.3] * 6, State.OK),
    ],
)
def test_reward_collapse(rewards: list[float], state: State) -> None:
    assert verdict("reward", scalars_of(12, reward_mean=rewards)).state is state


@pytest.mark.parametrize("seed", range(2))
def test_rewards_of_a_few_prompts_are_noisy_and_no_collapse(seed: int) -> None:
    """8 prompts of their own difficulty, 8 binary rewards each: sd 0.1 a step, and means of five from 0.3 to 0.65."""
    rng = np.random.default_rng(seed)
    rewards = rng.binomial(8, rng.beta(2, 2, (1000, 8))).sum(1) / 64
    state = RunState.initial("run")
    for record in scalars_of(1000, reward_mean=rewards):
        state = advance(CONFIG, state, record).state
        assert not state.verdicts["reward"].state.alarming


def test_a_fall_does_not_widen_its_own_noise() -> None:
    rewards = np.r_[np.full(10, 0.5), np.linspace(0.5, 0.1, 40)] + np.random.default_rng(0).normal(0, 0.02, 50)
    found = final(scalars_of(50, reward_mean=rewards))
    assert found.detectors.reward.noise == pytest.approx(0.02, abs=0.01)
    assert found.verdicts["reward"].state is State.CRITICAL


def test_a_slow_decline_is_seen_before_the_collapse() -> None:
    rng = np.random.default_rng(2)
    rewards = np.r_[np.full(100, 0.5), np.linspace(0.5, 0.01, 100)] + rng.normal(0, 0.03, 200)
    states = [verdict("reward", scalars_of(n, reward_mean=rewards)).state for n in (100, 130)]
    assert states == [State.OK, State.WARN]


def improved_then(reward_to: float, entropy_to: float, seed: int = 0) -> list[StepSummary]:
    """120 steps from reward 0.2 to 0.9 as the entropy falls from 0.33 to 0.03, then 5 steps to the given levels."""
    rng = np.random.default_rng(seed)
    t = np.arange(180)
    share = np.clip((t - 120) / 5, 0, 1)
    reward, entropy = 0.9 - 0.7 * np.exp(-t / 25), 0.03 + 0.30 * np.exp(-t / 25)
    reward, entropy = reward + share * (reward_to - reward), entropy + share * (entropy_to - entropy)
    return scalars_of(180, reward_mean=rng.binomial(192, reward) / 192, entropy=entropy * rng.lognormal(0, 0.03, 180))


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_improved_first_is_judged_by_what_it_reached(seed: int) -> None:
    records = improved_then(0.58, 0.33, seed)
    before, after = final(records[:121]), final(records[:133])
    for name in ("reward", "entropy"):
        assert before.verdicts[name].state is State.OK
        assert after.verdicts[name].state is State.WARN
    assert "declines" in after.verdicts["reward"].message


@pytest.mark.parametrize("seed", range(3))
def test_a_small_dip_near_the_top_is_no_decline(seed: int) -> None:
    state = RunState.initial("run")
    for record in improved_then(0.8, 0.05, seed):
        state = advance(CONFIG, state, record).state
        assert not state.verdicts["reward"].state.alarming
        assert not state.verdicts["entropy"].state.alarming


@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_steps_of_a_run_that_improves_are_silent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    t, pace, top = np.arange(1000), rng.uniform(10, 150), rng.uniform(0.6, 0.99)
    reward = rng.binomial(64, top - (top - 0.2) * np.exp(-t / pace)) / 64
    entropy = (0.02 + 0.31 * np.exp(-t / pace)) * rng.lognormal(0, 0.1, 1000)
    state = RunState.initial("run")
    for record in scalars_of(1000, reward_mean=reward, entropy=entropy):
        state = advance(CONFIG, state, record).state
        assert not any(found.state.alarming for found in state.verdicts.values())


@pytest.mark.parametrize("seed", range(3))
def test_the_way_back_from_a_setback_is_progress(seed: int) -> None:
    """0.98 -> 0.3 -> 0.96 as the entropy goes 0.08 -> 0.5 -> 0.015: the fall to 0.015 is bought with reward."""
    rng, t = np.random.default_rng(seed), np.arange(200)
    reward = np.select(
        [t < 60, t < 90], [0.98, np.interp(t, [60, 90], [0.98, 0.3])], 0.96 - 0.66 * np.exp(-(t - 90) / 15)
    )
    entropy = np.select(
        [t < 60, t < 90], [0.08, np.interp(t, [60, 90], [0.08, 0.5])], 0.015 + 0.5 * np.exp(-(t - 90) / 15)
    )
    records = scalars_of(
        200, reward_mean=rng.binomial(192, reward) / 192, entropy=entropy * rng.lognormal(0, 0.03, 200)
    )
    assert final(records[:95]).verdicts["entropy"].state is State.WARN
    assert final(records).verdicts["entropy"].state is State.OK


def test_an_entropy_that_collapses_with_the_reward_is_still_a_collapse() -> None:
    records = scalars_of(60, entropy=np.geomspace(0.8, 0.02, 60), reward_mean=np.linspace(0.9, 0.2, 60))
    assert verdict("entropy", records).state is State.WARN


def test_no_variance_in_any_group_is_no_signal() -> None:
    assert verdict("reward", scalars_of(6, reward_mean=1.0, zero_variance_fraction=1.0)).state is State.INCONCLUSIVE


def test_a_reward_that_is_not_finite_is_inconclusive() -> None:
    found = verdict("reward", scalars_of(8, reward_mean=[0.5] * 7 + [math.nan]))
    assert found.state is State.INCONCLUSIVE


def test_limits_are_settings() -> None:
    config = with_settings(CONFIG, {"detectors.garbage.limit": 0.5})
    assert verdict("garbage", scalars_of(6, garbage_fraction=0.4), config).state is State.OK
