"""What is known here of each job, without a query for each at every scrape.

A job that this process hears of is followed in memory anyway. One that nobody hears of any more, as after a restart, is
read once, and again when something new is in its ledger. One that another replica hears of is that one's to tell.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.agent.run_state import RunState
from trimtab.api.folding import Committed
from trimtab.api.health_view import SILENT_AFTER_STEPS, silent_after
from trimtab.api.service import Service
from trimtab.storage.fleet import Newest

HEARD_FOR = 60.0
"""Seconds by which a job's newest summary may be ahead of what was last stored here, for this process to follow it."""
READS = 20
"""Jobs of which one thing is read again at one scrape, at most; the rest wait for the next."""
PATIENCE_FOR = 600.0
"""Seconds for which it is known how long a job may be silent."""
_log = logging.getLogger("trimtab.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    seq: int
    """The job's last ledger row when it was read."""
    state: RunState | None
    """None where it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patience:
    seconds: float
    until: float
    """Unix seconds; when it has to be looked at again."""


class Known:
    """States of jobs, and how long each may be silent."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._heard: dict[str, float] = {}
        """When something of the job was last stored here, Unix seconds."""
        self._read: dict[str, _Read] = {}
        self._patience: dict[str, _Patience] = {}

    def take(self, committed: Committed) -> None:
        """Something of a job was stored here."""
        self._heard[committed.record.job] = self._service.clock()

    def keep(self, jobs: Sequence[Newest]) -> None:
        """Forget all other jobs."""
        kept = {job.job for job in jobs}
        for known in (self._heard, self._read, self._patience):
            for job in known.keys() - kept:
                del known[job]

    def states(self, jobs: Sequence[Newest]) -> dict[str, RunState | None]:
        """States by job, None where one cannot be read; without those that another replica follows."""
        live, now = self._service.live(), self._service.clock()
        found: dict[str, RunState | None] = {}
        reads = 0
        for job in jobs:
            if job.job in live and job.received_at - self._heard.get(job.job, 0.0) <= HEARD_FOR:
                found[job.job] = live[job.job]
                continue
            read = self._read.get(job.job)
            settled = now - job.received_at > HEARD_FOR
            if (read is None or (settled and read.seq != job.seq)) and reads < READS:
                reads += 1
                self._read[job.job] = read = self._read_now(job)
            if read is not None and read.seq == job.seq:
                found[job.job] = read.state
        return found

    def patience(self, jobs: Sequence[Newest]) -> dict[str, float]:
        """Seconds without a summary after which each job is silent."""
        now = self._service.clock()
        looks = READS
        for job in jobs:
            known = self._patience.get(job.job)
            if known is None or (now >= known.until and looks):
                looks -= known is not None
                arrivals = self._service.store.arrivals(job.job, SILENT_AFTER_STEPS + 1)
                self._patience[job.job] = _Patience(seconds=silent_after(arrivals), until=now + PATIENCE_FOR)
        return {job.job: self._patience[job.job].seconds for job in jobs}

    def _read_now(self, job: Newest) -> _Read:
        try:
            return _Read(seq=job.seq, state=self._service.state(job.job))
        except Exception:  # one job must not take the others out of sight
            _log.exception("job %r is left out of the metrics", job.job)
            return _Read(seq=job.seq, state=None)
