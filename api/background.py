"""What runs beside the requests, from the app's start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Protocol

GRACE_S = 10.0
"""Seconds that the workers have, together, to finish what they began once the app ends."""
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 60.0
"""Seconds until a worker that has failed works again: twice as many after each failure, up to this."""
_log = logging.getLogger("trimtab.api")


class Worker(Protocol):
    """Something that goes on until it is told to stop."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then finish what was begun and return. It may be called again after it raised."""


async def rest(stop: asyncio.Event, seconds: float | None = None, *, wake: asyncio.Event | None = None) -> None:
    """Wait until `stop` or `wake` is set, or for so many seconds; `wake` is not set afterwards."""
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, wake) if event is not None]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if wake is not None:
        wake.clear()


class Background:
    """The workers of one app, for one event loop.

    One that fails takes nothing else with it: it is logged, and works again after a while.
    """

    def __init__(
        self, workers: Iterable[Worker] = (), *, first_retry_s: float = FIRST_RETRY_S, grace_s: float = GRACE_S
    ) -> None:
        self._workers = list(workers)
        self._first_retry_s, self._grace_s = first_retry_s, grace_s
        self._idle: dict[str, str] = {}

    def add(self, worker: Worker) -> None:
        """Have it work too, from the next start of the app on."""
        self._workers.append(worker)

    @property
    def idle(self) -> Mapping[str, str]:
        """Why workers do not work that should, by their names."""
        return self._idle

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Have the workers work while the block runs; they are stopped in the reverse order of their start."""
        running = []
        for worker in self._workers:
            stop = asyncio.Event()
            running.append((stop, asyncio.create_task(self._keep_at_work(worker, stop), name=type(worker).__name__)))
        try:
            yield
        finally:
            last = asyncio.get_running_loop().time() + self._grace_s
            for stop, task in reversed(running):
                stop.set()
                done, _ = await asyncio.wait((task,), timeout=max(0.0, last - asyncio.get_running_loop().time()))
                if not done:
                    _log.warning("%s has not ended within %.0f s, and is given up", task.get_name(), self._grace_s)
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task

    async def _keep_at_work(self, worker: Worker, stop: asyncio.Event) -> None:
        name, wait = type(worker).__name__, self._first_retry_s
        while True:
            try:
                await worker.run(stop)
                why = "has ended by itself"
            except Exception as error:
                _log.exception("%s has failed", name)
                why = f"has failed ({type(error).__name__}; the log has the details)"
            if stop.is_set():
                return
            self._idle[name] = f"{why}, and works again in {wait:g} s"
            await rest(stop, wait)
            if stop.is_set():
                return
            self._idle.pop(name, None)
            wait = min(2 * wait, LAST_RETRY_S)
