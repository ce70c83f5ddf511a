"""The audit trail."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trimtab.agent.state import EventKind
from trimtab.api.portable import MAX_INTEGER
from trimtab.api.problem import ERRORS
from trimtab.api.routes.common import JobName, ServiceOf
from trimtab.api.views import View
from trimtab.storage.values import StoredEvent

router = APIRouter(tags=["events"])

MAX_PAGE = 1000


class EventPage(View):
    """A stretch of the trail, ascending."""

    events: list[StoredEvent]
    next: int | None
    """Give it as `after` for the next page; null at the end."""


@router.get("/v1/jobs/{job}/events", responses=ERRORS, summary="What happened, in order")
def events(
    job: JobName,
    service: ServiceOf,
    after: Annotated[int, Query(ge=0, le=MAX_INTEGER, description="Only events with a larger number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    kind: Annotated[list[EventKind] | None, Query(description="Only these kinds.")] = None,
) -> EventPage:
    """Numbers count from 1 in each job and never change, so a reader can go on where it stopped."""
    found = service.store.events(job, after=after, limit=limit + 1, kinds=kind or ())
    more = len(found) > limit
    return EventPage(events=found[:limit], next=found[limit - 1].number if more else None)
