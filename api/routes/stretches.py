"""What summaries said together whose own contents are gone."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from fastapi import APIRouter, Query

from trimtab.api.portable import MAX_INTEGER
from trimtab.api.routes.common import JobName, ServiceOf
from trimtab.api.views import View
from trimtab.storage.history import History
from trimtab.storage.rollups import LEVELS, Stretch

router = APIRouter(tags=["signals"])


class Level(IntEnum):
    """Steps of a stretch: `trimtab.storage.rollups.LEVELS`."""

    FINE = LEVELS[0]
    COARSE = LEVELS[1]


class Stretches(View):
    """Roll-ups of one attempt."""

    job: str
    attempt: int | None
    """Null before the first summary."""
    level: Level
    stretches: list[Stretch]
    """Ascending; each is what its summaries add up to, in their own terms."""


@router.get("/v1/jobs/{job}/stretches", summary="Sketches of steps that are not kept singly")
def get_stretches(
    job: JobName,
    service: ServiceOf,
    attempt: Annotated[int | None, Query(ge=0, le=MAX_INTEGER, description="The newest when it is missing.")] = None,
    level: Annotated[Level, Query(description="Steps of a stretch; the finer are kept less long.")] = Level.COARSE,
) -> Stretches:
    """Empty while every summary is kept, as it is unless the service was told to keep fewer."""
    attempts = service.store.attempts(job)
    if attempt is None and attempts:
        attempt = attempts[-1]
    found = [] if attempt is None else History(service.database).stretches(job, attempt, level)
    return Stretches(job=job, attempt=attempt, level=level, stretches=found)
