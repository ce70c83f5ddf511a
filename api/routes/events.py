"""The audit trail of a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query

from trimtab.agent.state import EventKind
from trimtab.api.routes.common import JobName, KnownJob, ServiceOf
from trimtab.api.routes.paging import MAX_PAGE, PAGE, CursorOf, Limit, Page, paged
from trimtab.storage.values import StoredEvent

router = APIRouter(tags=["events"])

Kinds = Annotated[list[EventKind] | None, Query(description="Only these kinds; repeat for several.")]


class EventPage(Page):
    """A stretch of the trail, ascending."""

    events: list[StoredEvent]


@router.get("/v1/jobs/{job}/events", summary="What happened, in order")
def list_events(
    job: JobName, service: ServiceOf, cursor: CursorOf, limit: Limit = PAGE, kind: Kinds = None
) -> EventPage:
    """Numbers count from 1 in each job and never change: the number of the last event that was seen is a cursor, so
    that a reader can go on where it stopped."""
    found = service.store.events(job, after=cursor or 0, limit=limit + 1, kinds=kind or ())
    page, following = paged(found, limit, cursor=lambda one: one.number)
    return EventPage(events=page, next=following)


@router.get("/v1/jobs/{job}/events.jsonl", summary="Everything that happened, a line each")
def export_events(job: KnownJob, service: ServiceOf, cursor: CursorOf, kind: Kinds = None) -> Iterator[StoredEvent]:
    """The whole trail from the cursor on as JSON lines, however long it is; what is added meanwhile is in it too."""
    after = cursor or 0
    while page := service.store.events(job, after=after, limit=MAX_PAGE, kinds=kind or ()):
        yield from page
        after = page[-1].number
