"""Whether the service can serve, and why not.

What may hang is asked beside the event loop and given up after a while, so that a probe is answered whatever happens.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from trimtab.api.background import Background
from trimtab.api.ingest import HIGH_WATER, IngestQueue
from trimtab.api.problem import Problem
from trimtab.storage.database import Database

PATIENCE_S = 2.0
"""After which something that does not answer counts as away."""
LEAST_FREE = 64_000_000
"""Bytes that have to be free on the disk of an SQLite file: some minutes of summaries, and the log that they go to."""
STUCK_S = 10.0
"""After which a transaction that stores summaries counts as stuck."""
_log = logging.getLogger("trimtab.api")
Check = Callable[[], list[str]]


class Readiness:
    """Looks at everything that serving needs. For one event loop."""

    def __init__(
        self,
        database: Database,
        queue: IngestQueue,
        background: Background,
        *,
        patience_s: float = PATIENCE_S,
        free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    ) -> None:
        """Readiness of an app.

        Args:
            database: where everything is.
            queue: where summaries wait.
            background: the app's workers.
            patience_s: seconds after which something that does not answer counts as away.
            free: bytes that are free on the disk of a folder.
        """
        self._database, self._queue, self._background = database, queue, background
        self._patience_s, self._free = patience_s, free
        self._asking: dict[str, asyncio.Task[list[str]]] = {}
        self._told: list[str] = []

    async def reasons(self) -> list[Problem]:
        """Why the service cannot serve; empty when it can. What changes is logged."""
        slow = await asyncio.gather(self._ask("database", self._database.not_ready), self._ask("disk", self._full))
        found = [*slow[0], *slow[1]]
        if self._queue.is_full:
            waiting = f"{self._queue.depth} summaries wait to be stored, and no more are taken"
            found.append(Problem(field="queue", value=self._queue.depth, message=f"{waiting} from {HIGH_WATER} on"))
        if self._queue.storing_s > STUCK_S:
            message = f"a transaction has been under way for {self._queue.storing_s:.0f} s"
            found.append(Problem(field="queue", value=self._queue.depth, message=message))
        for name, why in self._background.idle.items():
            found.append(Problem(field="workers", value=name, message=why))
        self._tell(found)
        return found

    async def _ask(self, field: str, check: Check) -> list[Problem]:
        asking = self._asking.get(field)
        if asking is None:  # one that hangs is not asked again, or every probe would cost a thread
            asking = self._asking[field] = asyncio.create_task(asyncio.to_thread(check))
            asking.add_done_callback(lambda _: self._asking.pop(field))
        done, _ = await asyncio.wait((asking,), timeout=self._patience_s)
        if not done:
            messages = [f"no answer within {self._patience_s:g} s"]
        elif (error := asking.exception()) is None:
            messages = asking.result()
        elif isinstance(error, (OSError, SQLAlchemyError)):
            messages = [str(error)]
        else:
            raise error
        return [Problem(field=field, value=None, message=message) for message in messages]

    def _full(self) -> list[str]:
        if self._database.dialect != "sqlite":
            return []
        folder = Path(self._database.name).parent
        left = self._free(folder)
        return [] if left >= LEAST_FREE else [f"only {left / 1e6:.0f} MB are free in {folder}; make room"]

    def _tell(self, found: list[Problem]) -> None:
        now = [one.field if one.field != "workers" else one.value for one in found]
        if now and now != self._told:
            _log.warning("not ready: %s", "; ".join(f"{one.field}: {one.message}" for one in found))
        elif self._told and not now:
            _log.info("ready again")
        self._told = now
