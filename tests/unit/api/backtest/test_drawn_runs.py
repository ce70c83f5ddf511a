"""Drawn runs are what they are said to be, by plain numpy on what the hooks summed up."""

import math
from dataclasses import replace

import numpy as np
import pytest

from trimtab.agent.signals import read_all
from trimtab.api.backtest import faults
from trimtab.api.backtest.conditions import SMALL, Fault, Setup, Size
from trimtab.api.backtest.run import summary_at
from trimtab.api.backtest.scenarios import KINDS, SCALARS, SCENARIOS, TENSORS, Label
from trimtab.hooks.records import StepSummary
from trimtab.hooks.sketch import Sign

STEADY = Setup(wander=0.0)


def summary(
    step: int = 0,
    *,
    fault: Fault = faults.nothing,
    onset: int = 0,
    setup: Setup = STEADY,
    size: Size = SMALL,
    seed: int = 3,
) -> StepSummary:
    return summary_at(setup, size, seed, step, fault=fault, onset=onset)


def signal(name: str, fault: Fault = faults.nothing, *, setup: Setup = STEADY, steps: int = 12, step: int = 0) -> float:
    """Mean of a signal over seeds."""
    values = [read_all(summary(step, fault=fault, setup=setup, seed=seed))[name] for seed in range(steps)]
    return float(np.mean([value for value in values if value is not None]))


def test_a_step_depends_on_its_seed_and_number_alone() -> None:
    assert summary(7) == summary(7)
    assert summary(7).sketches != summary(8).sketches
    assert summary(7).sketches != summary(7, seed=4).sketches


def test_runs_of_one_seed_are_the_same_until_their_onsets() -> None:
    shifted = faults.bulk(-0.2)
    assert summary(9, fault=shifted, onset=10) == summary(9)
    assert summary(10, fault=shifted, onset=10) != summary(10)


def test_a_full_step_has_the_tokens_and_the_spread_that_are_promised() -> None:
    one = summary(size=Size())
    assert one.tokens == pytest.approx(0.8 * 64 * 512, rel=0.05)
    variance = 0.97 * 0.04**2 + 0.03 * 2 * 0.15**2
    assert read_all(one)["update_std"] == pytest.approx(math.sqrt(variance), rel=0.05)
    assert read_all(one)["entropy"] == pytest.approx(0.35, rel=0.15)
    assert not one.nonfinite


def test_the_quantiles_are_those_of_the_mixture() -> None:
    rng = np.random.default_rng(0)
    n = 1_000_000
    wide = rng.random(n) < 0.03
    reference = np.where(wide, rng.laplace(0, 0.15, n), rng.normal(0, 0.04, n))
    for sign in ("negative", "positive"):
        for q in (5, 95):
            found = signal(f"update_q{q:02d}_{sign}")
            assert found == pytest.approx(float(np.quantile(reference, q / 100)), rel=0.03)


def test_rewards_are_binary_and_as_frequent_as_asked() -> None:
    for success in (0.5, 0.01):
        fault = faults.reward(success, 0)
        assert signal("reward_mean", fault, steps=200) == pytest.approx(success, abs=0.02)
    rewards = [64 * summary(step).scalars["reward_mean"] for step in range(10)]
    assert rewards == [round(reward) for reward in rewards]
    assert len(set(rewards)) > 3


@pytest.mark.parametrize("size", [0.2, 0.02])
def test_a_tail_moves_by_its_size_and_the_bulk_does_not(size: float) -> None:
    fault = faults.tail(size)
    assert signal("asymmetry_mean", fault) - signal("asymmetry_mean") == pytest.approx(-0.05 * size, rel=0.1)
    median = [summary(fault=fault, seed=seed).sketches["update"].sign(Sign.NEGATIVE).quantile(0.5) for seed in range(5)]
    assert max(map(abs, median)) < 0.01


def test_a_ramp_grows_to_its_size_and_stays() -> None:
    fault = faults.bulk(-0.2, over=100)
    shifts = [signal("asymmetry_mean", fault, step=step, steps=10) for step in (0, 49, 99, 300)]
    assert shifts == pytest.approx([-0.002, -0.1, -0.2, -0.2], abs=0.006)


def test_a_shift_is_of_one_sign() -> None:
    for fault, expected in ((faults.bulk(-0.2), -0.2), (faults.bulk(0, -0.2), 0.2), (faults.bulk(-0.2, -0.2), 0.0)):
        assert signal("asymmetry_mean", fault) == pytest.approx(expected, abs=0.006)


def test_the_scale_wanders_slowly_around_one_with_the_spread_that_is_asked_for() -> None:
    few = Size(prompts=4, length=64)
    drawn = [read_all(summary(step, setup=Setup(), size=few)) for step in range(50, 850)]
    spreads = [math.log(values["update_std"] or 0) for values in drawn]
    assert np.std(spreads) == pytest.approx(0.15, rel=0.25)
    assert np.corrcoef(spreads[:-1], spreads[1:])[0, 1] > 0.6


def test_entropy_goes_to_its_factor_in_a_straight_line() -> None:
    for factor in (3.0, 0.1):
        fault = faults.entropy(factor, 200)
        halfway = signal("entropy", fault, step=99) / signal("entropy", step=99)
        assert halfway == pytest.approx(1 + (factor - 1) / 2, rel=1e-3)
        assert signal("entropy", fault, step=199) / signal("entropy", step=199) == pytest.approx(factor, rel=1e-3)


def test_passes_share_their_rollouts_and_widen_their_ratios() -> None:
    setup = Setup(passes=4)
    steps = [summary(step, setup=setup) for step in range(8)]
    assert [one.pass_index for one in steps] == [0, 1, 2, 3, 0, 1, 2, 3]
    rewards = [one.scalars["reward_mean"] for one in steps]
    assert len(set(rewards[:4])) == 1
    lengths = [one.scalars["length_mean"] for one in steps]
    assert len(set(lengths[:4])) == len(set(lengths[4:])) == 1
    assert lengths[0] != lengths[4]
    spreads = [read_all(one)["update_std"] or 0 for one in steps[:4]]
    assert spreads == sorted(spreads)


def test_a_resume_is_a_new_attempt_whose_steps_go_back() -> None:
    fault = faults.resume(10, 1.0)
    before, after = summary(49, fault=fault, onset=50), summary(50, fault=fault, onset=50)
    assert (before.attempt, before.step) == (0, 49)
    assert (after.attempt, after.step) == (1, 40)
    assert read_all(after)["update_std"] == pytest.approx(2 * (read_all(summary(50))["update_std"] or 0), rel=0.02)


def test_wrong_answers_grow_longer() -> None:
    drift = faults.longer_answers(0.9, 0.2, 0)
    one, same = summary(fault=drift), summary()
    assert one.scalars["length_mean"] > same.scalars["length_mean"]


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_value_of_a_tensor_is_poisoned_in_one_step(name: str, kind: str) -> None:
    scenario = SCENARIOS[f"{kind} in {name}"]
    poisoned = summary(5, fault=scenario.fault, onset=5).nonfinite
    assert set(poisoned) == {name}
    counts = {"NaN": poisoned[name].nan, "+inf": poisoned[name].posinf, "-inf": poisoned[name].neginf}
    assert [what for what, count in counts.items() if count] == [kind]
    assert not summary(6, fault=scenario.fault, onset=5).nonfinite


@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_is_poisoned(name: str) -> None:
    assert math.isnan(summary(fault=SCENARIOS[f"NaN in {name}"].fault).scalars[name])


def test_a_garbage_batch_is_a_single_one() -> None:
    fault = SCENARIOS["garbage batches"].fault
    assert signal("garbage_fraction", fault) == pytest.approx(0.5, abs=0.05)
    assert summary(1, fault=fault) == summary(1)


def test_every_scenario_can_be_drawn_at_any_step() -> None:
    for scenario in SCENARIOS.values():
        for step in (0, 3, 900):
            drawn = summary(step, fault=scenario.fault, setup=scenario.setup, size=replace(SMALL, length=16))
            assert drawn.tokens


def test_what_fails_has_a_bar_for_each_case_that_was_promised_one() -> None:
    bars = {one.name: one.bar for one in SCENARIOS.values() if one.label is Label.FAILING and one.bar is not None}
    assert {name: bar for name, bar in bars.items() if bar} == {
        "tail -0.2": 5,
        "tail -0.2 ramp": 15,
        "tail -0.05": 10,
        "tail -0.02": 10,
        "negative -0.005": 12,
        "negative -0.2": 5,
        "entropy x3": 30,
        "entropy to 10 %": 40,
        "entropy x3 at entropy 2": 30,
        "entropy to 10 % at entropy 2": 40,
        "reward collapse": 60,
    }
    assert sum(bar == 0 for bar in bars.values()) == 21


def test_the_quantile_that_bounds_the_tail_moves_with_it() -> None:
    moved = [
        (read_all(summary(seed=seed, size=Size(), fault=faults.tail(0.2)))["asymmetry"] or 0.0)
        - (read_all(summary(seed=seed, size=Size()))["asymmetry"] or 0.0)
        for seed in range(10)
    ]
    assert np.median(moved) == pytest.approx(-0.2, rel=0.05)
