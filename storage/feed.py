"""What is new in the store, for those who watch: where each job stands, and the events since."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, and_, func, or_, select

from trimtab.storage import queries
from trimtab.storage.database import Database
from trimtab.storage.tables import EventRow, JobRow, LedgerRow

MOST_EVENTS = 1000
"""Read at once; the rest comes next time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Where one job stands."""

    id: int
    archived: bool
    attempt: int | None
    """With `step`, of the newest summary of rank 0 of the newest attempt; None before the first."""
    step: int | None
    events: int
    """Number of its newest event; 0 without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FedEvent:
    """An event that somebody may want to look at."""

    job: str
    number: int
    kind: str
    attempt: int
    step: int
    message: str


class Feed:
    """Reads what is new, from this process or from another that shares the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def marks(self, jobs: Collection[str] | None = None) -> dict[str, Mark]:
        """Where jobs stand, by name; all of them, unless some are named."""
        wanted = _marks() if jobs is None else _marks().where(JobRow.name.in_(sorted(jobs)))
        with self._database.read() as connection:
            return {
                row.name: Mark(
                    id=row.id,
                    archived=row.archived_at is not None,
                    attempt=row.attempt,
                    step=row.step,
                    events=row.events,
                )
                for row in connection.execute(wanted)
            }

    def events(self, after: Mapping[str, tuple[int, int]]) -> list[FedEvent]:
        """Events of jobs with larger numbers, those of each job ascending; at most `MOST_EVENTS`.

        `after`: by the job's name its id and the number of its last event that is known.
        """
        names = {job_id: name for name, (job_id, _) in after.items()}
        ranges = [and_(EventRow.job_id == job_id, EventRow.number > number) for job_id, number in after.values()]
        if not ranges:
            return []
        columns = (EventRow.job_id, EventRow.number, EventRow.kind, EventRow.attempt, EventRow.step, EventRow.message)
        wanted = select(*columns).where(or_(*ranges)).order_by(EventRow.job_id, EventRow.number).limit(MOST_EVENTS)
        with self._database.read() as connection:
            return [
                FedEvent(
                    job=names[row.job_id],
                    number=row.number,
                    kind=row.kind,
                    attempt=row.attempt,
                    step=row.step,
                    message=row.message,
                )
                for row in connection.execute(wanted)
            ]


def _marks() -> Select[Any]:
    number = select(func.coalesce(func.max(EventRow.number), 0)).where(EventRow.job_id == JobRow.id)
    return select(
        JobRow.id,
        JobRow.name,
        JobRow.archived_at,
        queries.newest(LedgerRow.attempt).label("attempt"),
        queries.newest(LedgerRow.step).label("step"),
        number.scalar_subquery().label("events"),
    ).order_by(JobRow.id)
