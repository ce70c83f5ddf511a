"""Summaries on their way from many requests into few transactions.

Whatever has come while one transaction ran goes into the next: one summary alone waits for nobody, and under load a
commit is shared. What is answered is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from sqlalchemy.exc import DataError, DBAPIError

from trimtab.agent.advance import Outcome
from trimtab.api.background import rest
from trimtab.api.folding import Input
from trimtab.api.problem import ApiError
from trimtab.api.service import Service
from trimtab.storage.store import Appended

MAX_TOGETHER = 32
"""Summaries in one transaction: with some 2 ms for each, a person's action waits for no longer than a blink."""
HIGH_WATER = 2000
"""Summaries that may wait; whoever sends more is asked to come again."""
RETRY_AFTER_S = 2
LOCK_TIMEOUT = "55P03"
"""PostgreSQL's code for a lock that was not had in time."""

Answer = tuple[Appended, Outcome] | Exception


class IngestQueue:
    """The way of summaries into the store, for requests of one event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: deque[tuple[Input, asyncio.Future[Answer]]] = deque()
        self._arrived = asyncio.Event()
        self._since: float | None = None
        """When the transaction that is under way began."""

    @property
    def depth(self) -> int:
        """Summaries that wait."""
        return len(self._waiting)

    @property
    def storing_s(self) -> float:
        """Seconds for which the transaction has been under way that is; 0 where none is."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def is_full(self) -> bool:
        """Whether nothing more is taken."""
        return self.depth >= HIGH_WATER

    async def put(self, inputs: Sequence[Input]) -> list[Answer]:
        """Have summaries stored; what became of each, in their order.

        Raises:
            ApiError: too many wait already (503); nothing of these was taken.
            DBAPIError: the database does not answer; some of them may be stored, and sending all again is safe.
        """
        if self.is_full:
            message = f"{self.depth} summaries wait to be stored; send it again in {RETRY_AFTER_S} s"
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "", message, headers={"retry-after": str(RETRY_AFTER_S)})
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Answer]] = [loop.create_future() for _ in inputs]
        self._waiting.extend(zip(inputs, answers, strict=True))
        self._arrived.set()
        return list(await asyncio.gather(*answers))

    async def run(self, stop: asyncio.Event) -> None:
        """Store what comes, and, once `stop` is set, what is still there."""
        with ThreadPoolExecutor(1, thread_name_prefix="trimtab-writer") as writer:
            while True:
                while self._waiting:
                    await self._store(writer)
                if stop.is_set():
                    return
                await rest(stop, wake=self._arrived)

    async def _store(self, writer: ThreadPoolExecutor) -> None:
        """One transaction."""
        together = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_TOGETHER))]
        inputs = [one for one, _ in together]
        self._since = time.monotonic()
        try:
            answers = await asyncio.get_running_loop().run_in_executor(writer, self._commit, inputs)
        except Exception as error:
            for _, waiting in together:
                if not waiting.done():  # whoever asked may have gone
                    waiting.set_exception(error)
            return
        finally:
            self._since = None
        for (_, waiting), answer in zip(together, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)

    def _commit(self, inputs: Sequence[Input]) -> list[Answer]:
        """Store them together or, where one of them is at fault, each for itself."""
        try:
            return self._service.commit(inputs)
        except DBAPIError as error:
            if len(inputs) == 1 or not _is_of_one(error):
                raise
        answers: list[Answer] = []
        held: dict[str, DBAPIError] = {}
        for one in inputs:
            if one.job in held:  # the others of its job would wait as long
                answers.append(held[one.job])
                continue
            try:
                answers += self._service.commit([one])
            except DBAPIError as error:
                answers.append(error)
                if not isinstance(error, DataError):
                    held[one.job] = error
        return answers


def _is_of_one(error: DBAPIError) -> bool:
    """Whether the database refuses a value, or waits for another replica to let go of a job: and takes all others."""
    return isinstance(error, DataError) or getattr(error.orig, "sqlstate", None) == LOCK_TIMEOUT
