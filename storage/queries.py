"""Reading, on a connection whose transaction the caller holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, func, select

from trimtab.storage.tables import EventRow, JobRow, LedgerRow, RunStateRow, SignalRow
from trimtab.storage.values import Entry, EntryKind, Job, SignalSeries, StoredEvent, StoredState, ValueKind

CHUNK = 256
"""Ledger rows in memory at a time while a whole ledger is read."""


JUDGED_RANK = 0
"""The rank that is judged, and whose signals are drawn, whichever comes first."""


class UnknownJobError(LookupError):
    """No job of that name."""

    def __init__(self, job: str) -> None:
        super().__init__(f"there is no job {job!r}; a job appears with its first summary, or when it is registered")
        self.job = job


def jobs() -> Select[Any]:
    """Every job with the length of its ledger, and when the newest of its judged summaries came."""
    rows = select(func.coalesce(func.max(LedgerRow.seq), 0)).where(LedgerRow.job_id == JobRow.id).scalar_subquery()
    reported = judged(LedgerRow.received_at).where(LedgerRow.job_id == JobRow.id).limit(1).scalar_subquery()
    return select(JobRow.name, JobRow.config, JobRow.created_at, rows.label("rows"), reported.label("last_received_at"))


def judged(*columns: Any) -> Select[Any]:
    """Summaries of rank 0, the newest step of the newest attempt first, whichever came last."""
    judged_rank = select(*columns).where(LedgerRow.kind == EntryKind.SUMMARY, LedgerRow.rank == JUDGED_RANK)
    return judged_rank.order_by(LedgerRow.attempt.desc(), LedgerRow.step.desc())


def find_job(connection: Connection, job: str) -> RowMapping | None:
    """The job's id and settings, locked until the transaction ends where the database locks rows."""
    statement = select(JobRow.id, JobRow.config).where(JobRow.name == job).with_for_update()
    return connection.execute(statement).mappings().one_or_none()


def job_id(connection: Connection, job: str) -> int:
    """The job's id. Raises `UnknownJobError`."""
    found = connection.execute(select(JobRow.id).where(JobRow.name == job)).scalar_one_or_none()
    if found is None:
        raise UnknownJobError(job)
    return found


def state(connection: Connection, job_id: int) -> StoredState | None:
    """The state, or None."""
    statement = select(RunStateRow.state, RunStateRow.schema).where(RunStateRow.job_id == job_id)
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else StoredState(state=row["state"], schema=row["schema"])


def last_seq(connection: Connection, job_id: int) -> int:
    """Place of the last ledger row, 0 without one."""
    return connection.execute(select(func.max(LedgerRow.seq)).where(LedgerRow.job_id == job_id)).scalar_one() or 0


def entry_with_key(connection: Connection, job_id: int, entry: Entry) -> RowMapping | None:
    """The stored entry under the same key; None for an action, which has no key."""
    if entry.kind is not EntryKind.SUMMARY:
        return None
    statement = select(LedgerRow.seq, LedgerRow.digest).where(
        LedgerRow.job_id == job_id,
        LedgerRow.attempt == entry.attempt,
        LedgerRow.step == entry.step,
        LedgerRow.rank == entry.rank,
    )
    return connection.execute(statement).mappings().one_or_none()


def entries(job_id: int) -> Select[Any]:
    """The ledger, ascending."""
    return select(*LedgerRow.__table__.columns).where(LedgerRow.job_id == job_id).order_by(LedgerRow.seq)


def read_entries(connection: Connection, job_id: int) -> Iterator[Entry]:
    """The ledger, ascending, a stretch at a time."""
    rows = connection.execute(entries(job_id), execution_options={"yield_per": CHUNK})
    return map(as_entry, rows.mappings())


def events(job_id: int) -> Select[Any]:
    """The audit trail, ascending."""
    return select(*EventRow.__table__.columns).where(EventRow.job_id == job_id).order_by(EventRow.number)


def series(connection: Connection, job_id: int, name: str, attempt: int) -> SignalSeries:
    """One signal of one attempt."""
    statement = select(SignalRow.step, SignalRow.value, SignalRow.kind).where(
        SignalRow.job_id == job_id, SignalRow.name == name, SignalRow.attempt == attempt
    )
    rows = connection.execute(statement.order_by(SignalRow.step)).all()
    values = tuple(ValueKind(kind).restored(value) for _, value, kind in rows)
    return SignalSeries(name=name, attempt=attempt, steps=tuple(step for step, _, _ in rows), values=values)


def as_job(row: RowMapping) -> Job:
    """The job that a row of `jobs` holds."""
    return Job(
        name=row["name"],
        config=row["config"],
        created_at=row["created_at"],
        rows=row["rows"],
        last_received_at=row["last_received_at"],
    )


def as_entry(row: RowMapping) -> Entry:
    """The entry that a ledger row holds."""
    fields: dict[str, Any] = {str(name): value for name, value in row.items() if name != "job_id"}
    return Entry(**{**fields, "kind": EntryKind(fields["kind"])})


def as_event(row: RowMapping) -> StoredEvent:
    """The event that a row of the audit trail holds."""
    fields: dict[str, Any] = {str(name): value for name, value in row.items() if name != "job_id"}
    return StoredEvent(**{**fields, "detail": json.loads(fields["detail"])})
