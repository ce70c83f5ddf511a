"""All jobs at once, for those who look at hundreds every few seconds: a query a question, never a query a job."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, func, select, tuple_

from trimtab.storage import queries
from trimtab.storage.database import Database
from trimtab.storage.packing import unpacked_floats
from trimtab.storage.tables import JobRow, LedgerRow, ObservationRow, QuarantineRow, SignalSetRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """A job and the newest of its judged summaries: of rank 0, of the newest step of the newest attempt."""

    job_id: int
    job: str
    seq: int
    """Last row of its ledger, whatever that is; 0 without one."""
    attempt: int
    step: int
    received_at: float
    """Unix seconds; when that summary came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """What a job has in quarantine."""

    summaries: int
    last_at: float
    """Unix seconds."""


class Fleet:
    """Reads all jobs of a database together."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self, *, since: float) -> list[Newest]:
        """Jobs that are not archived and have reported after this Unix time, in the order in which they were made."""
        with self._database.read() as connection:
            rows = connection.execute(_newest().where(LedgerRow.received_at >= since)).mappings()
            return [Newest(**row) for row in rows]

    def observations(self, jobs: Iterable[Newest]) -> dict[str, dict[str, float]]:
        """Every signal of each job's newest step, by job and name."""
        names = {(job.job_id, job.attempt, job.step): job.job for job in jobs}
        key = (ObservationRow.job_id, ObservationRow.attempt, ObservationRow.step)
        wanted = (
            select(*key, ObservationRow.values, SignalSetRow.names)
            .join(SignalSetRow, SignalSetRow.id == ObservationRow.set_id)
            .where(tuple_(*key).in_(list(names)))
        )
        with self._database.read() as connection:
            return {
                names[job_id, attempt, step]: dict(zip(_listed(known), unpacked_floats(values), strict=True))
                for job_id, attempt, step, values, known in connection.execute(wanted)
            }

    def quarantines(self) -> dict[int, Quarantine]:
        """Jobs that have summaries in quarantine, by id."""
        count, last = func.count(), func.max(QuarantineRow.received_at)
        with self._database.read() as connection:
            rows = connection.execute(select(QuarantineRow.job_id, count, last).group_by(QuarantineRow.job_id))
            return {job_id: Quarantine(summaries=summaries, last_at=at) for job_id, summaries, at in rows}


def _newest() -> Select[Any]:
    of_job = LedgerRow.job_id == JobRow.id
    last = select(func.max(LedgerRow.seq)).where(of_job).correlate(JobRow).scalar_subquery()
    seq = queries.judged(LedgerRow.seq).where(of_job).limit(1).correlate(JobRow).scalar_subquery()
    return (
        select(
            JobRow.id.label("job_id"),
            JobRow.name.label("job"),
            last.label("seq"),
            LedgerRow.attempt,
            LedgerRow.step,
            LedgerRow.received_at,
        )
        .join(LedgerRow, of_job & (LedgerRow.seq == seq))
        .where(JobRow.archived_at.is_(None))
        .order_by(JobRow.id)
    )


@lru_cache(maxsize=4096)
def _listed(names: str) -> tuple[str, ...]:
    return tuple(json.loads(names))
