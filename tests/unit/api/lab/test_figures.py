from __future__ import annotations

import math

import numpy as np
import pytest

from trimtab.api.lab.figures import COLLAPSE, SMOOTHING, collapse, smoothed, spikes


def test_smoothing_is_a_mean_of_what_there_is() -> None:
    assert smoothed([1.0, 3.0, 5.0, 7.0, 9.0, 11.0]) == [1.0, 2.0, 3.0, 4.0, 5.0, 7.0]


def test_collapse_against_its_definition_on_random_runs() -> None:
    generator = np.random.default_rng(4)
    seen = set()
    for _ in range(200):
        rewards = np.clip(np.cumsum(generator.normal(0, 0.1, 60)) + 0.5, 0, 1)
        means = np.convolve(rewards, np.ones(SMOOTHING) / SMOOTHING, "valid")
        below = np.flatnonzero(means < COLLAPSE * np.maximum.accumulate(means))
        expected = int(below[0]) + SMOOTHING - 1 if len(below) else None
        assert collapse(rewards.tolist()) == expected
        seen.add(expected is None)
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("rewards", "step"),
    [
        ([0.5] * 30, None),
        ([0.5] * 10 + [0.1] * 10, 12),  # three of five: 0.26 is below 0.3
        ([0.9], None),  # shorter than a window
        ([0.9] + [0.0] * 3, None),
    ],
)
def test_where_a_run_collapses(rewards: list[float], step: int | None) -> None:
    assert collapse(rewards) == step


@pytest.mark.parametrize(
    ("norms", "count"),
    [
        ([1.0] * 10 + [5.0, 5.1, 1.0, math.inf, math.nan], 3),
        ([9.0] * 3 + [1.0] * 7 + [4.0, 6.0], 1),  # the median forgives what came at the start
        ([1.0, 100.0], 0),  # nothing to compare with yet
    ],
)
def test_spikes(norms: list[float], count: int) -> None:
    assert spikes(norms) == count
