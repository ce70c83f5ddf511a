"""Rates and delays, against values that can be worked out by hand and against plain resampling."""

import numpy as np
import pytest

from trimtab.api.backtest.rates import delay, rate


def test_no_alarm_is_no_proof_of_none() -> None:
    found = rate([0, 0], [1000, 2000])
    assert (found.alarms, found.steps, found.per_step, found.low) == (0, 3000, 0.0, 0.0)
    assert found.high == pytest.approx(3 / 3000)


def test_a_rate_is_of_all_steps_and_not_a_mean_of_rates() -> None:
    assert rate([1, 3], [100, 900]).per_step == pytest.approx(4 / 1000)


def test_the_interval_is_that_of_resampled_runs() -> None:
    rng = np.random.default_rng(1)
    alarms, steps = rng.poisson(3, 40).tolist(), [1000] * 40
    found = rate(alarms, steps)
    other = np.random.default_rng(2)
    means = [np.mean(other.choice(alarms, 40)) / 1000 for _ in range(5000)]
    assert found.low == pytest.approx(np.quantile(means, 0.025), rel=0.06)
    assert found.high == pytest.approx(np.quantile(means, 0.975), rel=0.06)


def test_nothing_judged_is_no_rate() -> None:
    assert rate([], []).high == float("inf")


def test_the_delay_of_runs_that_were_all_seen() -> None:
    found = delay([4, 2, 9])
    assert (found.runs, found.missed, found.median, found.worst) == (3, 0, 4.0, 9)
    assert found.low == 2.0
    assert found.high == 9.0


def test_a_missed_run_is_later_than_any_other() -> None:
    found = delay([4, None, 2])
    assert (found.missed, found.median, found.worst) == (1, 4.0, None)
    found = delay([None, None, 2])
    assert (found.missed, found.median, found.worst) == (2, None, None)
    assert found.high is None


def test_the_same_delays_give_the_same_interval() -> None:
    delays = np.random.default_rng(3).integers(0, 20, 30).tolist()
    assert delay(delays) == delay(delays)
