"""Writing, on a connection whose transaction the caller holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from trimtab.storage import audit, outbox, queries
from trimtab.storage.archive import reported_again
from trimtab.storage.deeds import deeds_of
from trimtab.storage.packing import packed, packed_floats
from trimtab.storage.signal_sets import SignalSets
from trimtab.storage.tables import (
    EventRow,
    JobRow,
    LedgerRow,
    ObservationRow,
    QuarantineRow,
    RunStateRow,
)
from trimtab.storage.values import Entry, EntryKind, NewEvent, Origin, StoredState


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRow:
    """A ledger row with everything that is written beside it."""

    job_id: int
    job: str
    seq: int
    entry: Entry
    origin: Origin
    events: tuple[NewEvent, ...]
    signals: dict[str, float]


_LEDGER, _OBSERVATIONS = insert(LedgerRow), insert(ObservationRow)


def upsert(connection: Connection, table: type[Any]) -> Any:
    """An insert that can say what to do on a conflict."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def jobs(connection: Connection, names: Iterable[str], config: str, now: float) -> set[str]:
    """New jobs; those that another replica made meanwhile stay as they are. The names of those that were made."""
    made = set()
    for name in sorted(set(names)):
        row = upsert(connection, JobRow).values(name=name, config=config, created_at=now)
        made |= set(connection.execute(row.on_conflict_do_nothing().returning(JobRow.name)).scalars())
    return made


def appended(connection: Connection, rows: Sequence[NewRow], sets: SignalSets) -> None:
    """Write ledger rows behind the last ones, with their events, alerts and signals, and put what was done on record.

    A job that reports again is archived no more.
    """
    connection.execute(_LEDGER, [_ledger_row(row) for row in rows])
    _events(connection, rows)
    judged = [row for row in rows if row.entry.rank == queries.JUDGED_RANK and row.signals]
    if judged:
        _observations(connection, judged, sets)
    reported = [row for row in rows if row.entry.kind is EntryKind.SUMMARY]
    for row in rows:
        outbox.enqueue(connection, row.job_id, row.job, row.events, row.entry.received_at)
    deeds = reported_again(connection, {row.job_id for row in reported}, rows[-1].entry.received_at)
    deeds += [deed for row in rows for deed in deeds_of(row)]
    audit.append(connection, deeds)  # last: other writers wait from here


def quarantined(connection: Connection, job_id: int, seq: int, entry: Entry) -> None:
    """Keep an entry whose key row `seq` holds, once for each content."""
    values = {"job_id": job_id, "seq": seq, "digest": entry.digest}
    values |= {"payload": packed(entry.payload), "received_at": entry.received_at}
    connection.execute(upsert(connection, QuarantineRow).values(**values).on_conflict_do_nothing())


def snapshot(connection: Connection, job_id: int, stored: StoredState) -> None:
    """A snapshot of the job's state, in the place of an older one; a newer one stays."""
    values = {"seq": stored.seq, "schema": stored.schema, "state": stored.state}
    statement = upsert(connection, RunStateRow).values(job_id=job_id, **values)
    no_newer = (RunStateRow.seq <= stored.seq) | (RunStateRow.schema != stored.schema)
    connection.execute(statement.on_conflict_do_update(index_elements=["job_id"], set_=values, where=no_newer))


def _ledger_row(row: NewRow) -> dict[str, Any]:
    entry = row.entry
    return {
        "job_id": row.job_id,
        "seq": row.seq,
        "kind": entry.kind,
        "attempt": entry.attempt,
        "step": entry.step,
        "rank": entry.rank,
        "payload": packed(entry.payload),
        "digest": entry.digest,
        "received_at": entry.received_at,
    }


def _events(connection: Connection, rows: Sequence[NewRow]) -> None:
    loud = sorted({row.job_id for row in rows if row.events})
    if not loud:
        return
    last = select(EventRow.job_id, func.max(EventRow.number)).where(EventRow.job_id.in_(loud)).group_by(EventRow.job_id)
    numbers = dict.fromkeys(loud, 0) | dict(connection.execute(last).all())
    written = []
    for row in rows:
        for event in row.events:
            numbers[row.job_id] += 1
            written.append(
                {
                    "job_id": row.job_id,
                    "number": numbers[row.job_id],
                    "seq": row.seq,
                    "kind": event.kind,
                    "attempt": event.attempt,
                    "step": event.step,
                    "message": event.message,
                    "detail": event.detail,
                }
            )
    connection.execute(insert(EventRow), written)


def _observations(connection: Connection, rows: Sequence[NewRow], known: SignalSets) -> None:
    sets = [(row.job_id, tuple(row.signals)) for row in rows]
    numbers = known.numbered(connection, sets)
    written = [
        {
            "job_id": row.job_id,
            "attempt": row.entry.attempt,
            "step": row.entry.step,
            "set_id": numbers[observed],
            "values": packed_floats(list(row.signals.values())),
        }
        for row, observed in zip(rows, sets, strict=True)
    ]
    connection.execute(_OBSERVATIONS, written)
