"""What runs beside the requests, from the app's start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

GRACE_S = 10.0
"""Seconds that a worker has to finish what it began once the app ends."""
_log = logging.getLogger("trimtab.api")


class Worker(Protocol):
    """Something that goes on until it is told to stop."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then finish what was begun and return."""


@contextlib.asynccontextmanager
async def at_work(workers: Sequence[Worker]) -> AsyncIterator[None]:
    """Have the workers work while the block runs; they are stopped in the reverse order of their start.

    A worker that fails takes nothing else with it: it is logged.
    """
    running = []
    for worker in workers:
        stop = asyncio.Event()
        running.append((stop, asyncio.create_task(_work(worker, stop))))
    try:
        yield
    finally:
        for stop, task in reversed(running):
            stop.set()
            done, _ = await asyncio.wait((task,), timeout=GRACE_S)
            if not done:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _work(worker: Worker, stop: asyncio.Event) -> None:
    try:
        await worker.run(stop)
    except Exception:
        _log.exception("%s has failed, and does nothing any more", type(worker).__name__)
