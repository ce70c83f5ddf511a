"""What is shown of many jobs at once: a few queries, however many jobs there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select

from trimtab.storage import queries
from trimtab.storage.database import Database
from trimtab.storage.tables import JobRow, LedgerRow, QuarantineRow
from trimtab.storage.values import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One job, and what came of it lately."""

    id: int
    """Grows with every job that is made: the cursor of pagination."""
    job: Job
    arrivals: tuple[float, ...]
    """When the newest summaries of rank 0 of its newest attempt came, the newest first; Unix seconds."""
    quarantined: int
    """Summaries refused because another one held their key."""
    quarantined_at: float | None
    """When the last of those came, Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a job, as far as its summaries of rank 0 tell."""

    attempt: int
    summaries: int
    first_step: int
    last_step: int
    first_received_at: float
    """Unix seconds; when the summary of `first_step` came."""
    last_received_at: float
    """Unix seconds; when the summary of `last_step` came."""


class Overview:
    """Reads jobs by the page."""

    def __init__(self, database: Database, *, arrivals: int) -> None:
        """`arrivals`: how many of a job's newest summaries are looked at."""
        self._database = database
        self._arrivals = arrivals

    def lines(
        self,
        *,
        archived: bool = False,
        query: str = "",
        since: float | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[JobLine]:
        """Jobs that are archived or not, newest first.

        Args:
            archived: which of the two.
            query: what their name contains, in any case.
            since: only those whose newest summary came at this Unix time, or later.
            before: only those with a smaller id.
            limit: at most so many; None for all.
        """
        wanted = queries.jobs().where(JobRow.archived_at.is_not(None) if archived else JobRow.archived_at.is_(None))
        if query:
            wanted = wanted.where(JobRow.name.icontains(query, autoescape=True))
        if since is not None:
            wanted = wanted.where(queries.newest(LedgerRow.received_at) >= since)
        if before is not None:
            wanted = wanted.where(JobRow.id < before)
        with self._database.read() as connection:
            return self._read(connection, wanted.limit(limit))

    def line(self, job: str) -> JobLine:
        """One job, archived or not. Raises `UnknownJobError`."""
        with self._database.read() as connection:
            found = self._read(connection, queries.jobs().where(JobRow.name == job))
        if not found:
            raise queries.UnknownJobError(job)
        return found[0]

    def attempts(self, job: str, *, before: int | None = None, limit: int | None = None) -> list[Attempt]:
        """Attempts of a job, the newest first; only those below `before`, at most `limit`. Raises `UnknownJobError`."""
        with self._database.read() as connection:
            found = connection.execute(_attempts(queries.job_id(connection, job), before, limit))
            return [Attempt(**row) for row in found.mappings()]

    def _read(self, connection: Connection, wanted: Select[Any]) -> list[JobLine]:
        rows = connection.execute(wanted.order_by(JobRow.id.desc())).mappings().all()
        ids = [row["id"] for row in rows]
        arrivals = self._arrived(connection, ids)
        quarantined = {row.job_id: row for row in connection.execute(_quarantined(ids))}
        return [
            JobLine(
                id=row["id"],
                job=queries.as_job(row),
                arrivals=tuple(arrivals[row["id"]]),
                quarantined=quarantined[row["id"]].summaries if row["id"] in quarantined else 0,
                quarantined_at=quarantined[row["id"]].last_at if row["id"] in quarantined else None,
            )
            for row in rows
        ]

    def _arrived(self, connection: Connection, ids: list[int]) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {job_id: [] for job_id in ids}
        for job_id, received_at in connection.execute(_arrivals(ids, self._arrivals)):
            found[job_id].append(received_at)
        return found


def _arrivals(ids: Iterable[int], count: int) -> Select[int, float]:
    """Job and time of each of the newest `count` summaries of the jobs, the newest first."""
    attempt = queries.newest(LedgerRow.attempt).label("attempt")
    newest = select(JobRow.id, attempt).where(JobRow.id.in_(ids)).cte("newest")
    of_attempt = (
        (LedgerRow.job_id == newest.c.id)
        & (LedgerRow.attempt == newest.c.attempt)
        & (LedgerRow.rank == queries.JUDGED_RANK)
    )
    oldest = select(LedgerRow.step).where(of_attempt).order_by(LedgerRow.step.desc()).limit(1).offset(count - 1)
    shown = LedgerRow.step >= func.coalesce(oldest.correlate(newest).scalar_subquery(), -1)
    found = select(LedgerRow.job_id, LedgerRow.received_at).join(newest, of_attempt & shown)
    return found.order_by(LedgerRow.job_id, LedgerRow.step.desc())


def _quarantined(ids: Iterable[int]) -> Select[int, int, float]:
    count, last = func.count().label("summaries"), func.max(QuarantineRow.received_at).label("last_at")
    wanted = select(QuarantineRow.job_id, count, last).where(QuarantineRow.job_id.in_(ids))
    return wanted.group_by(QuarantineRow.job_id)


def _attempts(job_id: int, before: int | None, limit: int | None) -> Select[Any]:
    """By way of the key, which holds no time: that of the two ends is looked up."""
    of_job = (LedgerRow.job_id == job_id) & (LedgerRow.rank == queries.JUDGED_RANK)
    below = of_job if before is None else of_job & (LedgerRow.attempt < before)
    steps = (
        select(
            LedgerRow.attempt,
            func.count().label("summaries"),
            func.min(LedgerRow.step).label("first_step"),
            func.max(LedgerRow.step).label("last_step"),
        )
        .where(below)
        .group_by(LedgerRow.attempt)
        .order_by(LedgerRow.attempt.desc())
        .limit(limit)
        .subquery()
    )

    def received(step: Any) -> Any:
        at = select(LedgerRow.received_at).where(of_job, LedgerRow.attempt == steps.c.attempt, LedgerRow.step == step)
        return at.correlate(steps).scalar_subquery()

    return select(
        *steps.c,
        received(steps.c.first_step).label("first_received_at"),
        received(steps.c.last_step).label("last_received_at"),
    ).order_by(steps.c.attempt.desc())
