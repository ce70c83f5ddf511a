"""Live: what is new, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.exc import SQLAlchemyError

from trimtab.api.access.gate import bearer_in
from trimtab.api.access.sessions import secret_in
from trimtab.api.hub import Hub, Message, Watcher
from trimtab.api.portable import MAX_ROW
from trimtab.api.problem import Problems
from trimtab.api.routes.common import DoormanOf, PrincipalOf, ServiceOf
from trimtab.api.routes.paging import MAX_PAGE
from trimtab.api.service import Service
from trimtab.hooks.records import MAX_JOB_LENGTH
from trimtab.storage.feed import FedEvent

router = APIRouter(tags=["events"])

LIFE_S = 900.0
"""Seconds after which a stream ends: whoever still may comes back, and goes on where it was."""
CHECK_S = 3.0
"""Longest time that a stream goes on once its reader's token or session is valid no more, besides the time for which
tokens are remembered."""
RETRY_MS = 2000
"""How soon a browser comes back."""
TOO_MANY: dict[int | str, dict[str, Any]] = {
    HTTPStatus.SERVICE_UNAVAILABLE: {"model": Problems, "description": "Too many watch already."}
}


def _hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub


async def _watched(
    service: ServiceOf,
    hub: Annotated[Hub, Depends(_hub)],
    job: Annotated[str | None, Query(max_length=MAX_JOB_LENGTH, description="Only this job; all when missing.")] = None,
) -> AsyncIterator[Watcher]:
    if job is not None:
        await asyncio.to_thread(service.store.job, job)
    with hub.watching(job) as watcher:
        yield watcher


def _admitted(request: Request, doorman: DoormanOf, principal: PrincipalOf) -> Callable[[], Awaitable[bool]]:
    bearer, cookie = bearer_in(request.headers), secret_in(request.headers.get("cookie", ""))

    async def still() -> bool:
        try:
            return await doorman.still_knows(principal, bearer, cookie)
        except SQLAlchemyError:
            return False

    return still


WatcherOf = Annotated[Watcher, Depends(_watched)]
StillAdmitted = Annotated[Callable[[], Awaitable[bool]], Depends(_admitted)]
"""Asks whether the reader would still be let in."""


@router.get("/v1/stream", response_class=EventSourceResponse, responses=TOO_MANY, summary="What is new, live")
async def stream(
    watcher: WatcherOf,
    service: ServiceOf,
    still_admitted: StillAdmitted,
    last_event_id: Annotated[
        str | None, Header(pattern="^[0-9]{1,16}$", description="Of the last event that was seen; with `job` only.")
    ] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Tells that there is something new; what it is, the other endpoints say.

    First `ready`: from here on nothing is missed, so read what you show now. Then, by their `event` field: `summary`
    `{job, attempt, step}`, the newest step of a job (some may be skipped); `event` `{job, number, kind, attempt, step,
    message}`, every event once, in the order of its job; `job` `{job, archived}`, which is new, was put away, or is
    back. With `job`, an event's `id` is its number, and a reader that comes back with `Last-Event-ID` gets what it
    missed. A comment comes every 15 s, and a stream ends after 15 minutes, or where its reader is too slow: come back.
    It ends as well, within seconds, once the token or session that it was asked for with is valid no more.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + LIFE_S
    await watcher.ready.wait()
    yield ServerSentEvent(event="ready", data={"job": watcher.job}, retry=RETRY_MS)
    sent = 0
    if watcher.job is not None and last_event_id is not None and int(last_event_id) <= MAX_ROW:  # no event's, beyond
        sent = int(last_event_id)
        async for message in _missed(service, watcher.job, sent):
            if not await still_admitted():
                return
            sent = message.number or sent
            yield _as_sent(message, watcher)
    while clock() < end:
        try:
            async with asyncio.timeout(CHECK_S):
                following = await watcher.next()
        except TimeoutError:
            if await still_admitted():
                continue
            return
        if following is None or not await still_admitted():
            return
        if following.number is None or watcher.job is None or following.number > sent:
            yield _as_sent(following, watcher)


async def _missed(service: Service, job: str, after: int) -> AsyncIterator[Message]:
    while page := await asyncio.to_thread(service.store.events, job, after=after, limit=MAX_PAGE):
        for one in page:
            data = {name: getattr(one, name) for name in _FIELDS}
            yield Message(kind="event", job=job, data={"job": job, **data}, number=one.number)
        after = page[-1].number


_FIELDS = [name for name in FedEvent.__slots__ if name != "job"]


def _as_sent(message: Message, watcher: Watcher) -> ServerSentEvent:
    identity = str(message.number) if watcher.job is not None and message.number is not None else None
    return ServerSentEvent(event=message.kind, data=message.data, id=identity)
