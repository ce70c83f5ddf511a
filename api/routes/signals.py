"""Signals over the steps of a run, for charts."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from trimtab.agent.signals import SIGNALS
from trimtab.api.portable import MAX_INTEGER
from trimtab.api.routes.common import JobName, ServiceOf
from trimtab.api.thin import thinned
from trimtab.api.views import View
from trimtab.storage.values import SignalSeries, ValueKind

router = APIRouter(tags=["signals"])

MAX_POINTS = 5000
MAX_NAMES = 200
"""Signals of one answer."""


class Series(View):
    """One signal: three columns of equal length, steps ascending."""

    name: str
    steps: list[int]
    values: list[float | None]
    """Null where the value is not finite; `kinds` says what it is."""
    kinds: list[ValueKind]
    censored: Literal["above", "below"] | None
    """Where it is logged after a clamp or a mask: the true values lie at these or above, or at these or below."""


class Signals(View):
    """Series of one attempt, and what else there is to ask for."""

    job: str
    attempt: int | None
    """Null before the first summary."""
    attempts: list[int]
    names: list[str]
    """Every signal of the job."""
    series: list[Series]


@router.get("/v1/jobs/{job}/signals", summary="Signals over time")
def get_signals(
    job: JobName,
    service: ServiceOf,
    name: Annotated[
        list[str] | None,
        Query(
            max_length=MAX_NAMES,
            description=f"Repeat for several, at most {MAX_NAMES}. When it is missing: all, or where the job has "
            "more, the first so many, those that trimtab makes itself before those that the trainer reports, each in "
            "the order of `names`.",
        ),
    ] = None,
    attempt: Annotated[int | None, Query(ge=0, le=MAX_INTEGER, description="The newest when it is missing.")] = None,
    points: Annotated[
        int,
        Query(ge=5, le=MAX_POINTS, description="At most so many per signal; extremes and non-finite values are kept."),
    ] = 500,
) -> Signals:
    """A step that a signal was not observed at is missing from its columns."""
    store = service.store
    attempts, names = store.attempts(job), store.signal_names(job)
    if attempt is None and attempts:
        attempt = attempts[-1]
    asked = _first(names) if name is None else name
    found = [] if attempt is None else store.signals(job, asked, attempt, points)
    reported = service.state(job).reported
    censored = {} if reported is None or reported.log is None else reported.log.censored
    series = [_thin(one, points, censored.get(one.name)) for one in found]
    return Signals(job=job, attempt=attempt, attempts=attempts, names=names, series=series)


def _first(names: list[str]) -> list[str]:
    """As many as one answer has, our own before those that the trainer reports; in their order."""
    chosen = set(sorted(names, key=lambda one: one not in SIGNALS)[:MAX_NAMES])
    return [one for one in names if one in chosen]


def _thin(series: SignalSeries, points: int, censored: Literal["above", "below"] | None) -> Series:
    kept = thinned(series.values, points)
    values = [series.values[i] for i in kept]
    return Series(
        name=series.name,
        steps=[series.steps[i] for i in kept],
        values=[value if math.isfinite(value) else None for value in values],
        kinds=[ValueKind.of(value) for value in values],
        censored=censored,
    )
