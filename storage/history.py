"""How far back one database goes: roll-ups, and ledgers whose early summaries have lost their contents.

What is written was worked out outside the writing transaction, which writes only if nobody else has gone on meanwhile:
two replicas may do the same at once, and each ledger row is counted once all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, func, select, tuple_, update

from trimtab.storage import queries, signal_rollups
from trimtab.storage.codec import STRETCH
from trimtab.storage.database import Database
from trimtab.storage.inserts import upsert
from trimtab.storage.packing import packed, unpacked
from trimtab.storage.rollups import LEVELS, Stretch, first_of
from trimtab.storage.signal_rollups import Key
from trimtab.storage.tables import HistoryRow, JobRow, LedgerRow, ObservationRow, SignalRollupRow, StretchRow
from trimtab.storage.values import Base, Entry, EntryKind

FINE, COARSE = LEVELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """How long one job's ledger is, and how far its history has been worked through."""

    job_id: int
    job: str
    rows: int
    rolled: int
    """Rows whose signals are in the roll-ups."""
    base: int
    """Rows whose contents are gone; 0 where the ledger is whole."""


class History:
    """The past of every job."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def ledgers(self) -> list[Ledger]:
        """Every job that has a ledger."""
        wanted = select(JobRow.id, JobRow.name, queries.LAST_SEQ, HistoryRow.rolled, HistoryRow.base_seq)
        with self.database.read() as connection:
            found = connection.execute(wanted.outerjoin(HistoryRow, HistoryRow.job_id == JobRow.id)).all()
        return [
            Ledger(job_id=job_id, job=job, rows=length, rolled=rolled or 0, base=base or 0)
            for job_id, job, length, rolled, base in found
            if length
        ]

    def roll_up(self, ledger: Ledger, most: int) -> Ledger:
        """Take the signals of the next `most` ledger rows into the roll-ups; how things stand after that."""
        last = min(ledger.rolled + most, ledger.rows)
        with self.database.read() as connection:
            found = signal_rollups.worked_out(connection, ledger.job_id, ledger.rolled, last)
        with self.database.write() as connection:
            queries.own(connection, [ledger.job_id])
            if _marks(connection, ledger.job_id)[0] == ledger.rolled:
                signal_rollups.merge(connection, ledger.job_id, found, last)
                _mark(connection, ledger.job_id, rolled=last)
        return replace(ledger, rolled=last)

    def next_entries(self, ledger: Ledger, last: int) -> tuple[str, Base | None, list[Entry]]:
        """Settings of the job, its base, and the ledger rows behind that, up to `last`."""
        with self.database.read() as connection:
            config = connection.execute(select(JobRow.config).where(JobRow.id == ledger.job_id)).scalar_one()
            wanted = queries.entries(ledger.job_id, ledger.base).where(LedgerRow.seq <= last)
            entries = list(map(queries.as_entry, connection.execute(wanted).mappings()))
            return config, queries.base(connection, ledger.job_id), entries

    def heard_at(self, now: float) -> float | None:
        """When the newest ledger row of any job came, as far as that is not ahead of `now`; Unix seconds."""
        newest = (
            select(LedgerRow.received_at)
            .where(LedgerRow.job_id == JobRow.id)
            .order_by(LedgerRow.seq.desc())
            .limit(1)
            .scalar_subquery()
        )
        each = select(newest.label("at")).select_from(JobRow).subquery()
        with self.database.read() as connection:
            return connection.execute(select(func.max(each.c.at)).where(each.c.at <= now)).scalar_one_or_none()

    def older_than(self, ledger: Ledger, after: int, moment: float, now: float) -> int:
        """The last ledger row before the first behind `after` that came since a Unix time.

        Times that lie ahead of `now` say nothing: a clock was wrong.
        """
        young = select(LedgerRow.seq).where(
            LedgerRow.job_id == ledger.job_id, LedgerRow.seq > after, LedgerRow.received_at.between(moment, now)
        )
        with self.database.read() as connection:
            first = connection.execute(young.order_by(LedgerRow.seq).limit(1)).scalar_one_or_none()
        return ledger.rows if first is None else first - 1

    def thin(self, ledger: Ledger, base: Base, stretches: Mapping[Key, Stretch]) -> bool:
        """Let the contents of the summaries up to the base go, `stretches` in their place; False where another replica
        has gone on meanwhile, or the signals are not rolled up so far."""
        with self.database.write() as connection:
            queries.own(connection, [ledger.job_id])
            rolled, known = _marks(connection, ledger.job_id)
            if known != ledger.base or rolled < base.seq:
                return False
            _merge(connection, ledger.job_id, stretches, base.seq)
            _let_go(connection, ledger.job_id, ledger.base, base.seq)
            values = {"base_schema": base.schema, "base_state": base.state, "base_essentials": base.essentials}
            _mark(connection, ledger.job_id, base_seq=base.seq, **values)
        return True

    def finest(self, ledger: Ledger) -> int:
        """The oldest ledger row that a finer roll-up tells of."""
        of_job = {"job_id": ledger.job_id, "level": FINE}
        with self.database.read() as connection:
            oldest = select(func.min(SignalRollupRow.seq)).filter_by(**of_job)
            return connection.execute(oldest).scalar_one() or ledger.rows

    def coarsen(self, ledger: Ledger, last: int) -> None:
        """Let the finer roll-ups go that no ledger row behind `last` is in."""
        old = (SignalRollupRow.job_id == ledger.job_id, SignalRollupRow.level == FINE, SignalRollupRow.seq <= last)
        with self.database.write() as connection:
            queries.own(connection, [ledger.job_id])
            gone = connection.execute(select(SignalRollupRow.attempt, SignalRollupRow.first).where(*old)).all()
            _leave_alone(
                connection, ledger.job_id, {(attempt, COARSE, first_of(step, COARSE)) for attempt, step in gone}
            )
            connection.execute(delete(SignalRollupRow).where(*old))
            of_job = (StretchRow.job_id == ledger.job_id, StretchRow.level == FINE, StretchRow.seq <= last)
            connection.execute(delete(StretchRow).where(*of_job))

    def stretches(self, job: str, attempt: int, level: int) -> list[Stretch]:
        """What those summaries of an attempt said whose contents are gone, added up over `level` steps each.

        Raises:
            UnknownJobError: there is no such job.
        """
        with self.database.read() as connection:
            key = {"job_id": queries.job_id(connection, job), "attempt": attempt, "level": level}
            found = select(StretchRow.payload).filter_by(**key).order_by(StretchRow.first)
            return [STRETCH.decode(unpacked(data)) for data in connection.execute(found).scalars()]


def _marks(connection: Connection, job_id: int) -> tuple[int, int]:
    """Up to where the signals are rolled up, and up to where contents are gone."""
    row = connection.execute(select(HistoryRow.rolled, HistoryRow.base_seq).filter_by(job_id=job_id)).one_or_none()
    return (0, 0) if row is None else (row[0], row[1])


def _mark(connection: Connection, job_id: int, **values: int | str) -> None:
    new = {"rolled": 0, "base_seq": 0, "base_schema": "", "base_state": "", "base_essentials": ""}
    statement = upsert(connection, HistoryRow).values(job_id=job_id, **{**new, **values})
    connection.execute(statement.on_conflict_do_update(index_elements=["job_id"], set_=values))


def _merge(connection: Connection, job_id: int, stretches: Mapping[Key, Stretch], seq: int) -> None:
    """Add stretches to those that there are."""
    if not stretches:
        return
    key = (StretchRow.attempt, StretchRow.level, StretchRow.first)
    held = select(*key, StretchRow.payload).where(*signal_rollups.in_keys(StretchRow, job_id, stretches))
    merged = dict(stretches)
    for attempt, level, first, data in connection.execute(held):
        merged[attempt, level, first] = STRETCH.decode(unpacked(data)).merged(merged[attempt, level, first])
    rows = [
        {
            "job_id": job_id,
            "attempt": attempt,
            "level": level,
            "first": first,
            "seq": seq,
            "payload": packed(STRETCH.encode(stretch)),
        }
        for (attempt, level, first), stretch in merged.items()
    ]
    signal_rollups.replace(connection, StretchRow, rows)


def _let_go(connection: Connection, job_id: int, after: int, last: int) -> None:
    """Empty the summaries behind `after`, up to `last`, and delete their observations."""
    gone = (
        LedgerRow.job_id == job_id,
        LedgerRow.seq > after,
        LedgerRow.seq <= last,
        LedgerRow.kind == EntryKind.SUMMARY,
    )
    judged = select(LedgerRow.attempt, LedgerRow.step).where(*gone, LedgerRow.rank == queries.JUDGED_RANK)
    steps = connection.execute(judged).all()
    keys = {
        (attempt, FINE, first_of(step, FINE)) for attempt, step in steps if attempt is not None and step is not None
    }
    _leave_alone(connection, job_id, keys)
    step = tuple_(ObservationRow.attempt, ObservationRow.step)
    connection.execute(delete(ObservationRow).where(ObservationRow.job_id == job_id, step.in_(judged)))
    connection.execute(update(LedgerRow).where(*gone).values(payload=b""))


def _leave_alone(connection: Connection, job_id: int, keys: set[Key]) -> None:
    """What is finer than these stretches is gone, or some of it."""
    if keys:
        of_keys = signal_rollups.in_keys(SignalRollupRow, job_id, keys)
        connection.execute(update(SignalRollupRow).where(*of_keys).values(alone=True))
