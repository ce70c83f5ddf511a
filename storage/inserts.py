"""Writing, on a connection whose transaction the caller holds."""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy import Connection, func, insert, select, update

from trimtab.storage import queries
from trimtab.storage.tables import EventRow, JobRow, LedgerRow, QuarantineRow, RunStateRow, SignalRow
from trimtab.storage.values import Entry, Folded, StoredState, ValueKind

Result = TypeVar("Result")


def job(connection: Connection, name: str, config: str, now: float) -> int:
    """A new job's id."""
    connection.execute(insert(JobRow).values(name=name, config=config, created_at=now))
    return queries.job_id(connection, name)


def appended(connection: Connection, job_id: int, entry: Entry, folded: Folded[Result]) -> None:
    """Write the entry behind the last one, with its state, events and signals."""
    seq = queries.last_seq(connection, job_id) + 1
    connection.execute(
        insert(LedgerRow).values(
            job_id=job_id,
            seq=seq,
            kind=entry.kind,
            attempt=entry.attempt,
            step=entry.step,
            rank=entry.rank,
            payload=entry.payload,
            digest=entry.digest,
            received_at=entry.received_at,
        )
    )
    state(connection, job_id, folded.state)
    _events(connection, job_id, seq, folded)
    if entry.rank == queries.JUDGED_RANK:
        _signals(connection, job_id, entry, folded.signals)


def quarantined(connection: Connection, job_id: int, seq: int, entry: Entry) -> None:
    """Keep an entry whose key row `seq` holds, once for each content."""
    values = {"job_id": job_id, "seq": seq, "digest": entry.digest}
    if connection.execute(select(QuarantineRow.seq).filter_by(**values)).first() is None:
        values |= {"payload": entry.payload, "received_at": entry.received_at}
        connection.execute(insert(QuarantineRow).values(**values))


def state(connection: Connection, job_id: int, stored: StoredState) -> None:
    """The job's state, in the place of the one before."""
    values = {"schema": stored.schema, "state": stored.state}
    changed = connection.execute(update(RunStateRow).where(RunStateRow.job_id == job_id).values(**values))
    if not changed.rowcount:
        connection.execute(insert(RunStateRow).values(job_id=job_id, **values))


def _events(connection: Connection, job_id: int, seq: int, folded: Folded[Result]) -> None:
    if not folded.events:
        return
    last = connection.execute(select(func.max(EventRow.number)).where(EventRow.job_id == job_id)).scalar_one() or 0
    connection.execute(
        insert(EventRow),
        [
            {
                "job_id": job_id,
                "number": number,
                "seq": seq,
                "kind": event.kind,
                "attempt": event.attempt,
                "step": event.step,
                "message": event.message,
                "detail": event.detail,
            }
            for number, event in enumerate(folded.events, start=last + 1)
        ],
    )


def _signals(connection: Connection, job_id: int, entry: Entry, signals: dict[str, float]) -> None:
    if not signals:
        return
    rows = []
    for name, value in signals.items():
        kind = ValueKind.of(value)
        finite = value if kind is ValueKind.FINITE else None
        key = {"job_id": job_id, "name": name, "attempt": entry.attempt, "step": entry.step}
        rows.append({**key, "value": finite, "kind": kind})
    connection.execute(insert(SignalRow), rows)
