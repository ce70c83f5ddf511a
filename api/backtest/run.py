"""A drawn run: any of its steps, at any time, as a function of seed and step alone."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from trimtab.api.backtest.conditions import Conditions, Fault, Setup, Size
from trimtab.api.backtest.draw import drawn
from trimtab.hooks.records import StepSummary

COEFFICIENT = 0.9
"""Of the AR(1) series."""
ENTROPY_WANDER = 0.03
"""Standard deviation of the logarithm of the mean entropy."""
BLOCK = 4096
"""Steps of the series that are drawn at once."""


def summary_at(setup: Setup, size: Size, seed: int, step: int, *, fault: Fault, onset: int) -> StepSummary:
    """Step `step` of the run of that seed, to which something happens from `onset` on.

    Runs of one seed are the same until their onsets, so that they can be judged together up to there.
    """
    rollout, pass_index = divmod(step, setup.passes)
    conditions = Conditions(
        step=step,
        entropy=setup.entropy * math.exp(ENTROPY_WANDER * _wander(seed, 1, step)),
        success=setup.success,
        scale=math.exp(setup.wander * _wander(seed, 0, rollout)),
    )
    if step >= onset:
        conditions = fault(conditions, step - onset)
    return drawn(
        _in_pass(conditions, pass_index),
        size,
        np.random.default_rng((seed, 2, rollout)),
        np.random.default_rng((seed, 3, step)),
        pass_index=pass_index,
    )


def _in_pass(conditions: Conditions, pass_index: int) -> Conditions:
    """Every update on the same rollouts carries the policy further from what sampled them, each sign its own way."""
    if not pass_index:
        return conditions
    return replace(
        conditions,
        scale=conditions.scale * (1 + 0.5 * pass_index),
        negative=conditions.negative - 0.004 * pass_index,
        positive=conditions.positive + 0.004 * pass_index,
    )


def _wander(seed: int, stream: int, step: int) -> float:
    """Value of an AR(1) series that starts at 0 and comes to unit variance."""
    block, place = divmod(step, BLOCK)
    return _series(seed, stream, block)[place]


@lru_cache(maxsize=64)
def _series(seed: int, stream: int, block: int) -> tuple[float, ...]:
    noise = np.random.default_rng((seed, stream, block)).standard_normal(BLOCK).tolist()
    value = _series(seed, stream, block - 1)[-1] if block else 0.0
    values = []
    for each in noise:
        value = COEFFICIENT * value + math.sqrt(1 - COEFFICIENT**2) * each
        values.append(value)
    return tuple(values)
