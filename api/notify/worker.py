"""The worker that tells people: it plans what is due, and delivers it, one request at a time to each endpoint.

Everything it knows is in the database, so it may be killed at any moment, and several may work on one database: what
was decided is sent at least once, under the same `webhook-id` however often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping

from sqlalchemy.exc import DBAPIError

from trimtab.api.background import rest
from trimtab.api.notify.planning import planned, trial
from trimtab.api.notify.posting import Poster
from trimtab.api.notify.schedule import Schedule
from trimtab.api.notify.sending import attempted
from trimtab.api.notify.shapes import SHAPES
from trimtab.api.notify.shapes.shape import Shape
from trimtab.storage.database import Database
from trimtab.storage.deliveries import Deliveries
from trimtab.storage.delivery import Claim, Delivery, Settlement, Status
from trimtab.storage.endpoints import Endpoints
from trimtab.storage.groups import Due, Groups, Planned

POLL_S = 1.0
"""How long something that is due may lie, besides the time that it takes to send it."""
LEASE_S = 30.0
"""How long an endpoint is taken for one request: longer than any may take, by more than clocks are apart. Where a
process dies, others wait as long before they send what it was sending."""
DRAIN_S = 8.0
PLANS = 200
"""Groups that are planned before anything of them is sent: what comes all the time must not hold up what is due."""
PRUNE_S = 3600.0
DAY_S = 86400.0
KEEP_NOTICES_S = 2 * DAY_S
"""Longer than any may still be told."""
KEEP_DELIVERED_S = 7 * DAY_S
KEEP_S = 30 * DAY_S
"""Resolved alerts, and messages that died."""
POSTPONED_S = 300.0
"""When a group is tried again that could not be put into words."""
RESULTS = {Status.DELIVERED: "delivered", Status.PENDING: "retried", Status.DEAD: "dead"}

_log = logging.getLogger("trimtab.notify")


class AlertWorker:
    """Tells people of the alerts of one database. Its methods are for one event loop."""

    def __init__(
        self,
        database: Database,
        poster: Poster,
        *,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
        link: Callable[[str], str] = lambda _: "",
        on_delivery: Callable[[str, str, float], None] = lambda *_: None,
        shapes: Mapping[str, Shape] = SHAPES,
        drain_s: float = DRAIN_S,
    ) -> None:
        """A worker that sends by way of `poster`.

        Args:
            database: where alerts and deliveries are.
            poster: sends requests, and is closed with the worker.
            clock: Unix seconds.
            draw: a number in [0, 1), for the jitter of retries.
            link: where a job is looked at, by its name; empty where that is not known.
            on_delivery: hears of every attempt: its shape, `delivered`, `retried` or `dead`, and its seconds.
            shapes: by name.
            drain_s: at the end, seconds that what is due may still take.
        """
        self._groups, self._deliveries, self._endpoints = Groups(database), Deliveries(database), Endpoints(database)
        self._poster, self._clock, self._link, self._shapes = poster, clock, link, shapes
        self._alone = database.dialect == "sqlite"  # which one process serves, and no other
        self._schedule = Schedule(random=draw)
        self._on_delivery, self._drain_s = on_delivery, drain_s
        self._name = secrets.token_hex(8)
        self._flying: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._pruned_at: float | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then send what is due, for as long as it may take."""
        if self._alone:
            with self._patiently():
                await asyncio.to_thread(self._deliveries.reclaim)
        async with self._poster:
            while not stop.is_set():
                with self._patiently():
                    if await self.turn():
                        self.wake()
                    await self.prune()
                await rest(stop, POLL_S, wake=self._wake)
            with self._patiently():
                await self._drain()

    def wake(self) -> None:
        """Look for work at once."""
        self._wake.set()

    async def turn(self) -> bool:
        """Plan what is due, and begin to send what can be sent, whose end `landed` waits for; whether more is due."""
        more = await self.plan()
        now = self._clock()
        claims = await asyncio.to_thread(self._deliveries.claim, now, lease=self._name, until=now + LEASE_S)
        for claim in claims:
            task = asyncio.create_task(self._deliver(claim))
            self._flying.add(task)
            task.add_done_callback(self._flying.discard)
        return more

    async def landed(self) -> None:
        """Wait until nothing is being sent."""
        while self._flying:
            await asyncio.wait(self._flying)

    async def settle(self) -> None:
        """Turn after turn, until nothing is due any more."""
        while await self.turn() or self._flying:
            await self.landed()

    def trial(self, endpoint: str) -> list[Delivery]:
        """Put a test on its way to an endpoint. Raises what `Deliveries.send` does."""
        now = self._clock()
        messages = trial(self._endpoints.get(endpoint), now, link=self._link)
        return [self._deliveries.send(endpoint, message, now) for message in messages]

    async def plan(self) -> bool:
        """Make messages of what is due to be told; whether there is more of it than is done at once."""
        return await asyncio.to_thread(self._plan)

    def _plan(self) -> bool:
        more = self._groups.schedule(self._clock())
        for _ in range(PLANS):
            if not self._groups.plan(self._clock(), self._decide):
                return more
        return True

    def _decide(self, due: Due) -> Planned:
        """What to send; a group that cannot be put into words holds up no other."""
        now = self._clock()
        try:
            return planned(due, now, link=self._link, shapes=self._shapes)
        except Exception:
            _log.exception("webhook %s cannot be told of job %s yet", due.endpoint.name, due.job)
            return Planned(told=due.told, told_at=due.told_at, due_at=now + POSTPONED_S)

    async def _deliver(self, claim: Claim) -> None:
        began = time.perf_counter()
        try:
            settled = await attempted(self._poster, claim, self._shapes, self._schedule, self._clock())
        except asyncio.CancelledError:
            self._deliveries.release(claim)
            raise
        except Exception as error:
            _log.exception("message %s cannot be made", claim.delivery.message_id)
            settled = Settlement(status=Status.DEAD, answer=None, error=f"it cannot be made: {error!r}")
        self._on_delivery(claim.endpoint.shape, RESULTS[settled.status], time.perf_counter() - began)
        if settled.status is not Status.DELIVERED:
            told = claim.endpoint.name, claim.delivery.message_id, RESULTS[settled.status], settled.error
            _log.warning("webhook %s: message %s is %s: %s", *told)
        with self._patiently():
            await asyncio.to_thread(self._deliveries.settle, claim, settled, self._clock())
        self.wake()

    async def _drain(self) -> None:
        """Send what is due, and leave the rest to the next start: it is in the database."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                await self.settle()
        for task in self._flying:
            task.cancel()
        await asyncio.gather(*self._flying, return_exceptions=True)
        left = await asyncio.to_thread(self._deliveries.waiting)
        if left:
            _log.warning("%d messages are not delivered; they are sent by whoever serves this database next", left)

    async def prune(self) -> None:
        """Forget what is old, once an hour."""
        now = self._clock()
        if self._pruned_at is None or abs(now - self._pruned_at) >= PRUNE_S:
            self._pruned_at = now
            await asyncio.to_thread(self._groups.prune, notices_before=now - KEEP_NOTICES_S, alerts_before=now - KEEP_S)
            await asyncio.to_thread(
                self._deliveries.prune, delivered_before=now - KEEP_DELIVERED_S, dead_before=now - KEEP_S
            )

    @staticmethod
    @contextlib.contextmanager
    def _patiently() -> Iterator[None]:
        """A database that does not answer is asked again later, and whatever else fails is tried again: as long as the
        service runs, somebody relies on being told."""
        try:
            yield
        except DBAPIError as error:
            _log.warning("alerts wait for the database: %s", error.orig)
        except Exception:
            _log.exception("alerts could not be told of, and are tried again")
