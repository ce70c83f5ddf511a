"""The states of all jobs, without folding a ledger for each at every scrape.

A job that this process hears of is followed in memory anyway. One that nobody hears of any more, as after a restart, is
read once. One that another replica hears of is that one's to tell of.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trimtab.agent.run_state import RunState
from trimtab.api.folding import Committed
from trimtab.api.service import Service
from trimtab.storage.overview import JobLine

HEARD_FOR = 60.0
"""Seconds by which a job's newest summary may be ahead of what was last stored here, for this process to follow it."""
READS = 20
"""Jobs that are read from the store at one scrape, at most; the rest wait for the next."""
_log = logging.getLogger("trimtab.api")


class Known:
    """States of jobs as they are known in this process."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._heard: dict[str, float] = {}
        """When something of the job was last stored here, Unix seconds."""
        self._unreadable: dict[str, int] = {}
        """The last ledger row of jobs that could not be read with it."""

    def take(self, committed: Committed) -> None:
        """Something of a job was stored here."""
        self._heard[committed.record.job] = self._service.clock()

    def keep(self, jobs: set[str]) -> None:
        """Forget all other jobs."""
        for known in (self._heard, self._unreadable):
            for job in known.keys() - jobs:
                del known[job]

    def states(self, lines: Sequence[JobLine]) -> dict[str, RunState]:
        """States by job; without those that another replica follows, and those that cannot be read."""
        live, found, reads = self._service.live(), {}, 0
        for line in lines:
            job, seq, reported = line.job.name, line.job.rows, line.job.last_received_at or 0.0
            state = self._service.current(job, seq)
            if state is None and job in live and reported - self._heard.get(job, 0.0) <= HEARD_FOR:
                state = live[job]  # a row more is stored than was folded a moment ago
            settled = job not in live or self._service.clock() - reported > HEARD_FOR
            if state is None and settled and reads < READS and self._unreadable.get(job) != seq:
                reads += 1
                state = self._read(job, seq)
            if state is not None:
                found[job] = state
        return found

    @property
    def unreadable(self) -> int:
        """Jobs that could not be read."""
        return len(self._unreadable)

    def _read(self, job: str, seq: int) -> RunState | None:
        try:
            state = self._service.state(job)
        except Exception:  # one job must not take the others out of sight
            _log.exception("job %r is left out of the metrics", job)
            self._unreadable[job] = seq
            return None
        self._unreadable.pop(job, None)
        return state
