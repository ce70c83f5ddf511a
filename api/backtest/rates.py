"""How often and how late, with the uncertainty of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
LEVEL = 0.95
NONE_SEEN = 3.0
"""Alarms that may be expected of as many steps as were silent: -log(1 - 0.95), the upper end of a Poisson count of 0
(the rule of three)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """False alarms by step."""

    alarms: int
    steps: int
    low: float
    """Lower end of the 95 % interval, alarms a step."""
    high: float

    @property
    def per_step(self) -> float:
        """Alarms a step; 0 where nothing was judged."""
        return self.alarms / self.steps if self.steps else 0.0


def rate(alarms: Sequence[int], steps: Sequence[int]) -> Rate:
    """The rate over runs, each with its alarms and its steps.

    The interval is the percentile bootstrap over runs (Efron 1979), since alarms within a run depend on each other;
    where there are none at all, it ends where three alarms were to be expected.
    """
    total, length = sum(alarms), sum(steps)
    if not total:
        return Rate(alarms=0, steps=length, low=0.0, high=NONE_SEEN / length if length else float("inf"))
    pairs = np.array([alarms, steps], dtype=float).T
    low, high = _interval(pairs, lambda drawn: drawn[..., 0].sum(axis=1) / drawn[..., 1].sum(axis=1))
    return Rate(alarms=total, steps=length, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Steps from onset to first alert, over runs."""

    runs: int
    missed: int
    """Runs without an alert."""
    median: float | None
    """Over all runs, a missed one being later than any other; None where half of them were missed."""
    low: float | None
    """Lower end of the 95 % bootstrap interval of the median."""
    high: float | None
    worst: int | None
    """Latest alert; None where a run was missed."""


def delay(delays: Sequence[int | None]) -> Delay:
    """Delays of runs, each None where there was no alert."""
    values = np.array([np.inf if one is None else one for one in delays], dtype=float)
    missed = int(np.isinf(values).sum())
    low, high = _interval(values[:, None], lambda drawn: _median(drawn[..., 0]))
    return Delay(
        runs=values.size,
        missed=missed,
        median=_finite(float(_median(values[None])[0])),
        low=_finite(low),
        high=_finite(high),
        worst=None if missed else int(values.max()),
    )


def _median(values: NDArray[Any]) -> NDArray[Any]:
    """Medians along the last axis; the upper of two middle values, since half of infinity means nothing."""
    ordered = np.sort(values, axis=-1)
    return ordered[..., values.shape[-1] // 2]


def _interval(values: NDArray[Any], statistic: Callable[[NDArray[Any]], NDArray[Any]]) -> tuple[float, float]:
    """Percentile bootstrap interval of a statistic that takes [resamples, runs, ...]."""
    rng = np.random.default_rng(0)
    found = statistic(values[rng.integers(0, len(values), (RESAMPLES, len(values)))])
    ordered = np.sort(found)
    low, high = (ordered[round(share * (RESAMPLES - 1))] for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
