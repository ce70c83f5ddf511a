"""Who watches, and what they are told: that there is something new, not what it looks like.

The store is the one source: while somebody watches it is read once a second, and at once when this process has stored
something. So it does not matter which of several processes took a summary, and nothing is told that is not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from trimtab.api.background import rest
from trimtab.api.folding import Committed
from trimtab.api.problem import ApiError
from trimtab.storage.database import Database
from trimtab.storage.feed import Feed, Mark

EVERY_S = 1.0
"""Longest time between two looks at the store while somebody watches."""
LEAST_S = 0.2
"""Shortest time between two looks, however much is stored."""
NOWHERE = Mark(id=0, archived=False, attempt=None, step=None, events=0)
"""Where a job stands before it is made."""
MOST_WATCHERS = 200
MOST_WAITING = 1000
"""Messages that may wait for one watcher; whoever is slower is sent away, and comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One thing that is new."""

    kind: str
    """`summary`, `event` or `job`."""
    job: str
    data: dict[str, Any]
    """Plain JSON data."""
    number: int | None = None
    """Of the event, in its job; None for anything else."""


class Watcher:
    """One that is told, until `close`."""

    def __init__(self, job: str | None, most: int = MOST_WAITING) -> None:
        self.job = job
        """None for all jobs."""
        self.ready = asyncio.Event()
        """Set once everything that is stored from then on will be told."""
        self._most = most
        self._waiting: asyncio.Queue[Message | None] = asyncio.Queue()

    async def next(self) -> Message | None:
        """What comes next; None once nothing more will."""
        return await self._waiting.get()

    def tell(self, message: Message) -> bool:
        """Put a message in the queue; false where it is full."""
        if self._waiting.qsize() >= self._most:
            return False
        self._waiting.put_nowait(message)
        return True

    def close(self) -> None:
        """Tell nothing more, and nothing of what waits."""
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self._waiting.put_nowait(None)
        self.ready.set()


class Hub:
    """Tells watchers of one event loop what is new in a database."""

    def __init__(self, database: Database, *, every: float = EVERY_S, least: float = LEAST_S) -> None:
        self._feed = Feed(database)
        self._every, self._least = every, least
        self._watchers: set[Watcher] = set()
        self._known: dict[str, Mark] = {}
        self._saw_all = False
        """The last look was at all jobs: one that is not among them then is new."""
        self._nudged = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.sent_away = 0
        """Watchers that were too slow."""

    @property
    def watchers(self) -> int:
        """How many watch."""
        return len(self._watchers)

    def stored(self, _committed: Committed) -> None:
        """Something was stored here: look soon. For any thread."""
        loop = self._loop
        if loop is not None and self._watchers:
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(self._nudged.set)

    @contextlib.contextmanager
    def watching(self, job: str | None) -> Iterator[Watcher]:
        """A watcher of one job, or of all, while the block runs. Raises `ApiError` (503): there are too many."""
        if self._closed or self.watchers >= MOST_WATCHERS:
            message = "the service ends" if self._closed else f"{self.watchers} watch already; try again later"
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "", message, headers={"retry-after": "10"})
        watcher = Watcher(job)
        self._watchers.add(watcher)
        self._nudged.set()
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def close(self) -> None:
        """Send everybody away, and let nobody in."""
        self._closed = True
        for watcher in self._watchers:
            watcher.close()
        self._nudged.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Look at the store while somebody watches."""
        self._loop = asyncio.get_running_loop()
        try:
            while not stop.is_set():
                await rest(stop, self._every if self._watchers else None, wake=self._nudged)
                if self._watchers and not stop.is_set():
                    with contextlib.suppress(SQLAlchemyError):  # the next look may find it there again
                        await self._look()
                    await rest(stop, self._least)
        finally:
            self._loop = None
            if stop.is_set():  # or it has failed, and looks again later
                self.close()

    async def _look(self) -> None:
        new = {watcher for watcher in self._watchers if not watcher.ready.is_set()}
        jobs = None if any(one.job is None for one in self._watchers) else {one.job or "" for one in self._watchers}
        marks = await asyncio.to_thread(self._feed.marks, jobs)
        made = marks.keys() - self._known.keys() if self._saw_all else set()
        # Of a job that nobody watched so far nothing is news yet; of one that is new, everything.
        before = {
            name: replace(NOWHERE, id=mark.id) if name in made else self._known.get(name, mark)
            for name, mark in marks.items()
        }
        behind = {
            name: (mark.id, before[name].events) for name, mark in marks.items() if mark.events > before[name].events
        }
        events = await asyncio.to_thread(self._feed.events, behind)
        for name, mark in marks.items():
            for message in _news(name, before[name], mark, made=name in made):
                self._tell(message, but=new)
        for event in events:
            self._tell(Message(kind="event", job=event.job, data=asdict(event), number=event.number), but=new)
        told = {event.job: event.number for event in events}
        self._known = {
            name: replace(mark, events=told.get(name, before[name].events if name in behind else mark.events))
            for name, mark in marks.items()
        }
        self._saw_all = jobs is None
        if any(self._known[name].events < mark.events for name, mark in marks.items()):
            self._nudged.set()
        for watcher in new:
            watcher.ready.set()

    def _tell(self, message: Message, but: set[Watcher]) -> None:
        for watcher in self._watchers - but:
            if watcher.job in (None, message.job) and not watcher.tell(message):
                self.sent_away += 1
                watcher.close()
                self._watchers.discard(watcher)


def _news(job: str, before: Mark, now: Mark, *, made: bool) -> Iterator[Message]:
    if made or before.archived is not now.archived:
        yield Message(kind="job", job=job, data={"job": job, "archived": now.archived})
    if now.step is not None and (before.attempt, before.step) != (now.attempt, now.step):
        yield Message(kind="summary", job=job, data={"job": job, "attempt": now.attempt, "step": now.step})
