"""Reading, on a connection whose transaction the caller holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, RowMapping, ScalarSelect, Select, bindparam, func, select, tuple_

from trimtab.storage.packing import unpacked
from trimtab.storage.tables import EventRow, HistoryRow, JobRow, LedgerRow, RunStateRow, SignalSetRow
from trimtab.storage.values import Base, Entry, EntryKind, Job, StoredEvent, StoredState

CHUNK = 256
"""Ledger rows in memory at a time while a whole ledger is read."""
JOB_LOCKS = 7_000_002
"""Class of the advisory locks by which one replica at a time owns a job; the key is the job's id."""
JUDGED_RANK = 0
"""The rank that is judged, and whose signals are drawn, whichever comes first."""


class UnknownJobError(LookupError):
    """No job of that name."""

    def __init__(self, job: str) -> None:
        super().__init__(f"there is no job {job!r}; a job appears with its first summary, or when it is registered")
        self.job = job


def jobs() -> Select[Any]:
    """Every job with the length of its ledger, and when the newest of its judged summaries came."""
    return select(
        JobRow.id,
        JobRow.name,
        JobRow.config,
        JobRow.created_at,
        JobRow.archived_at,
        LAST_SEQ.label("rows"),
        newest(LedgerRow.received_at).label("last_received_at"),
    )


def judged(*columns: Any) -> Select[Any]:
    """Summaries of rank 0, the newest step of the newest attempt first, whichever came last.

    The rank alone tells them, since an action has none: what asks for no more than the key is answered by its index.
    """
    judged_rank = select(*columns).where(LedgerRow.rank == JUDGED_RANK)
    return judged_rank.order_by(LedgerRow.attempt.desc(), LedgerRow.step.desc())


def newest(column: Any) -> ScalarSelect[Any]:
    """A column of the newest judged summary, for each job of the statement around it; NULL without one."""
    return judged(column).where(LedgerRow.job_id == JobRow.id).limit(1).scalar_subquery()


LAST_SEQ = select(func.coalesce(func.max(LedgerRow.seq), 0)).where(LedgerRow.job_id == JobRow.id).scalar_subquery()
"""Place of the last ledger row, for each job of the statement around it; 0 without one."""


# What every transaction of summaries asks is built once: building it costs more than SQLite takes to answer it.
_WANTED: BindParameter[Any] = bindparam("wanted", expanding=True)
_KEY = (LedgerRow.job_id, LedgerRow.attempt, LedgerRow.step, LedgerRow.rank)
_FIND_JOBS = select(JobRow.name, JobRow.id, JobRow.config).where(JobRow.name.in_(_WANTED))
_LAST_SEQS = select(JobRow.id, LAST_SEQ).where(JobRow.id.in_(_WANTED))
_HELD_KEYS = select(*_KEY, LedgerRow.seq, LedgerRow.digest).where(tuple_(*_KEY).in_(_WANTED))


def find_jobs(connection: Connection, names: Iterable[str]) -> dict[str, RowMapping]:
    """Id and settings of those of the jobs that exist."""
    rows = connection.execute(_FIND_JOBS, {"wanted": sorted(set(names))}).mappings()
    return {row["name"]: row for row in rows}


def own(connection: Connection, job_ids: Iterable[int]) -> bool:
    """Keep other replicas off these jobs until the transaction ends; whether that took a lock, and so perhaps a while.

    SQLite has one writer at a time anyway. Every replica asks in the same order, so that no two wait for each other.
    """
    if connection.dialect.name != "postgresql":
        return False
    for job_id in sorted(job_ids):
        connection.execute(select(func.pg_advisory_xact_lock(JOB_LOCKS, job_id)))
    return True


def job_id(connection: Connection, job: str) -> int:
    """The job's id. Raises `UnknownJobError`."""
    found = connection.execute(select(JobRow.id).where(JobRow.name == job)).scalar_one_or_none()
    if found is None:
        raise UnknownJobError(job)
    return found


def snapshot(connection: Connection, job_id: int) -> StoredState | None:
    """The newest snapshot of the job's state, or None."""
    statement = select(RunStateRow.state, RunStateRow.schema, RunStateRow.seq).where(RunStateRow.job_id == job_id)
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else StoredState(**row)


def base(connection: Connection, job_id: int) -> Base | None:
    """Where the job's ledger begins, or None where it is whole."""
    columns = (HistoryRow.base_seq, HistoryRow.base_schema, HistoryRow.base_state, HistoryRow.base_essentials)
    row = connection.execute(select(*columns).where(HistoryRow.job_id == job_id, HistoryRow.base_seq > 0)).one_or_none()
    return None if row is None else Base(seq=row[0], schema=row[1], state=row[2], essentials=row[3])


def last_seqs(connection: Connection, job_ids: Iterable[int]) -> dict[int, int]:
    """Place of the last ledger row of each job, 0 without one."""
    return dict(connection.execute(_LAST_SEQS, {"wanted": sorted(job_ids)}).all())


Key = tuple[int, int | None, int | None, int | None]
"""Job, attempt, step and rank."""


def held_keys(connection: Connection, keys: Sequence[Key]) -> dict[Key, tuple[int, str]]:
    """Place and digest of the ledger rows that hold any of the keys."""
    rows = connection.execute(_HELD_KEYS, {"wanted": list(keys)})
    return {(job, attempt, step, rank): (seq, digest) for job, attempt, step, rank, seq, digest in rows}


def payload(connection: Connection, job_id: int, seq: int) -> str:
    """What a ledger row holds."""
    wanted = select(LedgerRow.payload).where(LedgerRow.job_id == job_id, LedgerRow.seq == seq)
    return unpacked(connection.execute(wanted).scalar_one())


def entries(job_id: int, after: int = 0) -> Select[Any]:
    """The ledger behind row `after`, ascending."""
    wanted = select(*LedgerRow.__table__.columns).where(LedgerRow.job_id == job_id, LedgerRow.seq > after)
    return wanted.order_by(LedgerRow.seq)


def read_entries(connection: Connection, job_id: int, after: int = 0) -> Iterator[Entry]:
    """The ledger behind row `after`, ascending, a stretch at a time."""
    rows = connection.execute(entries(job_id, after), execution_options={"yield_per": CHUNK})
    return map(as_entry, rows.mappings())


def events(job_id: int) -> Select[Any]:
    """The audit trail, ascending."""
    return select(*EventRow.__table__.columns).where(EventRow.job_id == job_id).order_by(EventRow.number)


def signal_sets(connection: Connection, job_id: int) -> dict[int, list[str]]:
    """The sets of signals that the job has, by id."""
    rows = connection.execute(select(SignalSetRow.id, SignalSetRow.names).where(SignalSetRow.job_id == job_id))
    return {found: json.loads(names) for found, names in rows}


def as_job(row: RowMapping) -> Job:
    """The job that a row of `jobs` holds."""
    return Job(
        name=row["name"],
        config=row["config"],
        created_at=row["created_at"],
        rows=row["rows"],
        last_received_at=row["last_received_at"],
        archived_at=row["archived_at"],
    )


def as_entry(row: RowMapping) -> Entry:
    """The entry that a ledger row holds."""
    fields: dict[str, Any] = {str(name): value for name, value in row.items() if name != "job_id"}
    return Entry(**{**fields, "kind": EntryKind(fields["kind"]), "payload": unpacked(fields["payload"])})


def as_event(row: RowMapping) -> StoredEvent:
    """The event that a row of the audit trail holds."""
    fields: dict[str, Any] = {str(name): value for name, value in row.items() if name != "job_id"}
    return StoredEvent(**{**fields, "detail": json.loads(fields["detail"])})
