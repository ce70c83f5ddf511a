"""The one way to the database: an append-only ledger per job, and what was folded from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from trimtab.storage import audit, inserts, queries
from trimtab.storage.audit import Deed
from trimtab.storage.codec import same
from trimtab.storage.database import Database
from trimtab.storage.series import series
from trimtab.storage.signal_sets import SignalSets
from trimtab.storage.tables import EventRow, JobRow, LedgerRow, QuarantineRow
from trimtab.storage.values import (
    Arrival,
    Entry,
    EntryKind,
    Folded,
    Job,
    Origin,
    Past,
    Recorded,
    SignalSeries,
    StoredEvent,
    StoredState,
)

Result = TypeVar("Result")
Arriving = TypeVar("Arriving", bound=Arrival)
Fold = Callable[[Past, Arriving, bool], Folded[Result]]
"""What an arrival changes; the last argument is false for a duplicate, of which only the result is wanted. If it
raises, nothing is stored of the arrival."""


class Appended(StrEnum):
    """What became of an entry."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    """The same key with the same content: nothing was written."""


class ConflictError(ValueError):
    """Another content under a key that is taken. The first stays; this one is in quarantine."""


class ConfigFixedError(ValueError):
    """Other settings for a job that already has a ledger: its past could no longer be replayed."""


class Store:
    """Jobs, ledgers, states, events and signals in one database.

    Every method is one short transaction. Reading methods raise `UnknownJobError` for a job that does not exist.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._sets = SignalSets()

    # Writing

    def register(
        self,
        job: str,
        config: str,
        now: float,
        *,
        keep: Callable[[str], bool],
        origin: Origin,
        reason: str,
    ) -> None:
        """Make sure that the job exists with these settings (JSON), or with those it has where `keep` says so.

        Raises:
            ConfigFixedError: it has settings that are not kept, and a ledger that was folded with them.
        """
        deed = Deed(action="register", at=now, origin=origin, job=job, reason=reason, detail=json.loads(config))
        with self.database.write() as connection:
            new = job not in queries.find_jobs(connection, [job])
            if new and inserts.jobs(connection, [job], config, now):
                audit.append(connection, [deed])
                return
            queries.own(connection, [queries.job_id(connection, job)])
            found = queries.find_jobs(connection, [job])[job]  # as it is now that nobody else can change it
            if not keep(found["config"]):
                if queries.last_seqs(connection, [found["id"]])[found["id"]]:
                    raise ConfigFixedError(
                        f"job {job!r} has a ledger that was folded with other settings, which its first step fixed, or "
                        "the first change by a person, such as its mode; start a job of another name, "
                        "or try the settings on what was recorded with `trimtab replay --set`"
                    )
                connection.execute(update(JobRow).where(JobRow.id == found["id"]).values(config=config))
                audit.append(connection, [deed])

    def append(
        self, arrivals: Sequence[Arriving], begin: Callable[[], Fold[Arriving, Result]], *, config_if_new: str
    ) -> list[tuple[Appended, Result] | Exception]:
        """Put entries in their jobs' ledgers, and everything that they change beside them, in one transaction.

        A job that does not exist is registered with `config_if_new`. A repeated summary is folded for its result only.
        What cannot be taken is answered with its exception and takes nothing else with it: a `ConflictError` where the
        key is taken by other content, which stays (this content goes to quarantine), else whatever the fold raised.

        All are taken for new at first. Where the database then finds a key that is held, the transaction is undone and
        made again, with a look at every key: that is rare, and a look costs a tenth of everything. So `begin` may be
        called twice, for a fold that knows nothing of the one before.
        """
        try:
            return self._appended(arrivals, begin(), config_if_new, look=False)
        except IntegrityError:
            return self._appended(arrivals, begin(), config_if_new, look=True)

    def _appended(
        self, arrivals: Sequence[Arriving], fold: Fold[Arriving, Result], config_if_new: str, *, look: bool
    ) -> list[tuple[Appended, Result] | Exception]:
        with self.database.write() as connection:
            batch = _Batch(connection, arrivals, fold, config_if_new, look=look)
            answers = [batch.take(arrival) for arrival in arrivals]
            batch.write(self._sets)
        return answers

    def snapshot(self, job: str, fold: Callable[[Past], StoredState]) -> StoredState:
        """Put what `fold` gives in the place of the job's snapshot, in one transaction. Raises `UnknownJobError`."""
        with self.database.write() as connection:
            found = queries.find_jobs(connection, [job]).get(job)
            if found is None:
                raise queries.UnknownJobError(job)
            queries.own(connection, [found["id"]])
            state = fold(_past(connection, job, found["id"], found["config"]))
            inserts.snapshot(connection, found["id"], state)
            return state

    def keep(self, snapshots: Mapping[str, StoredState]) -> None:
        """Keep snapshots of jobs that exist, where there are no newer ones."""
        with self.database.write() as connection:
            for job, found in queries.find_jobs(connection, snapshots).items():
                inserts.snapshot(connection, found["id"], snapshots[job])

    # Reading

    def jobs(self) -> list[Job]:
        """Every job, newest first."""
        with self.database.read() as connection:
            rows = connection.execute(queries.jobs().order_by(JobRow.id.desc())).mappings()
            return [queries.as_job(row) for row in rows]

    def job(self, name: str) -> Job:
        """One job."""
        with self.database.read() as connection:
            row = connection.execute(queries.jobs().where(JobRow.name == name)).mappings().one_or_none()
        if row is None:
            raise queries.UnknownJobError(name)
        return queries.as_job(row)

    def read(self, job: str, fold: Callable[[Past], Result]) -> Result:
        """What `fold` makes of the job's snapshot and ledger."""
        with self.database.read() as connection:
            found = queries.find_jobs(connection, [job]).get(job)
            if found is None:
                raise queries.UnknownJobError(job)
            return fold(_past(connection, job, found["id"], found["config"]))

    def recorded(self, job: str) -> Recorded:
        """Everything about one job, as of one moment: what a replay needs and what it is compared with."""
        with self.database.read() as connection:
            job_id = queries.job_id(connection, job)
            base = queries.base(connection, job_id)
            return Recorded(
                job=job,
                config=connection.execute(select(JobRow.config).where(JobRow.id == job_id)).scalar_one(),
                entries=tuple(queries.read_entries(connection, job_id, after=base.seq if base else 0)),
                events=tuple(map(queries.as_event, connection.execute(queries.events(job_id)).mappings())),
                state=queries.snapshot(connection, job_id),
                base=base,
            )

    def latest_summary(self, job: str) -> Entry | None:
        """The summary of rank 0 of the newest step of the newest attempt, or None."""
        with self.database.read() as connection:
            job_id = queries.job_id(connection, job)
            newest = queries.judged(*LedgerRow.__table__.columns).where(LedgerRow.job_id == job_id).limit(1)
            row = connection.execute(newest).mappings().one_or_none()
            return None if row is None else queries.as_entry(row)

    def events(
        self, job: str, *, after: int = 0, limit: int | None = None, kinds: Sequence[str] = ()
    ) -> list[StoredEvent]:
        """The audit trail from `number` > `after`, ascending; only the named kinds, if any are named."""
        with self.database.read() as connection:
            statement = queries.events(queries.job_id(connection, job)).where(EventRow.number > after)
            if kinds:
                statement = statement.where(EventRow.kind.in_(kinds))
            return [queries.as_event(row) for row in connection.execute(statement.limit(limit)).mappings()]

    def signal_names(self, job: str) -> list[str]:
        """Names of the signals that the job has, sorted."""
        with self.database.read() as connection:
            sets = queries.signal_sets(connection, queries.job_id(connection, job))
            return sorted({name for names in sets.values() for name in names})

    def attempts(self, job: str) -> list[int]:
        """Attempts that the job's summaries came from, ascending."""
        with self.database.read() as connection:
            job_id = queries.job_id(connection, job)
            attempts = select(LedgerRow.attempt).where(LedgerRow.job_id == job_id).distinct()
            return sorted(attempt for attempt in connection.execute(attempts).scalars() if attempt is not None)

    def signals(self, job: str, names: Sequence[str], attempt: int, points: int | None = None) -> list[SignalSeries]:
        """The named signals of one attempt, in the order asked for; one that was never seen has no steps.

        At least `points` points of a signal are read where there are as many, and no finer than that takes; None for
        every step that is still there.
        """
        with self.database.read() as connection:
            return series(connection, queries.job_id(connection, job), names, attempt, points)

    def quarantined(self, job: str) -> int:
        """Number of the job's summaries in quarantine."""
        with self.database.read() as connection:
            statement = select(func.count()).where(QuarantineRow.job_id == queries.job_id(connection, job))
            return connection.execute(statement).scalar_one()


class _Batch(Generic[Arriving, Result]):
    """Arrivals on their way into one transaction."""

    def __init__(
        self,
        connection: Connection,
        arrivals: Sequence[Arriving],
        fold: Fold[Arriving, Result],
        config_if_new: str,
        *,
        look: bool,
    ) -> None:
        self._connection, self._fold = connection, fold
        names = {arrival.job for arrival in arrivals}
        self._jobs = queries.find_jobs(connection, names)
        self._made: set[str] = set()
        if unknown := names - self._jobs.keys():
            self._made = inserts.jobs(connection, unknown, config_if_new, arrivals[0].entry.received_at)
            self._jobs = queries.find_jobs(connection, names)
        ids = [row["id"] for row in self._jobs.values()]
        if queries.own(connection, ids):
            self._jobs = queries.find_jobs(connection, names)  # the settings may have changed while others owned them
        self._seqs = queries.last_seqs(connection, ids)
        keys = [self._key(arrival) for arrival in arrivals if arrival.entry.kind is EntryKind.SUMMARY]
        self._held = queries.held_keys(connection, keys) if look and keys else {}
        self._rows: list[inserts.NewRow] = []
        self._snapshots: dict[int, StoredState] = {}
        self._quarantined: list[tuple[int, int, Entry]] = []

    def take(self, arrival: Arriving) -> tuple[Appended, Result] | Exception:
        """What becomes of one arrival; nothing is written yet."""
        entry, job_id = arrival.entry, self._jobs[arrival.job]["id"]
        held = self._held.get(self._key(arrival)) if entry.kind is EntryKind.SUMMARY else None
        if held is not None and self._contradicts(job_id, held, entry):
            self._quarantined.append((job_id, held[0], entry))
            return ConflictError(
                f"attempt {entry.attempt}, step {entry.step}, rank {entry.rank} of job {arrival.job!r} is already "
                "stored with other content, which stays; do two trainers share the job and the attempt?"
            )
        past = _past(self._connection, arrival.job, job_id, self._jobs[arrival.job]["config"], self._seqs[job_id])
        try:
            folded = self._fold(past, arrival, held is None)
        except DBAPIError:
            raise  # the transaction is lost, and everything that came with it
        except Exception as error:
            return error
        if held is not None:
            return Appended.DUPLICATE, folded.result
        self._seqs[job_id] = seq = past.seq + 1
        if entry.kind is EntryKind.SUMMARY:
            self._held[self._key(arrival)] = seq, entry.digest
        self._rows.append(
            inserts.NewRow(
                job_id=job_id,
                job=arrival.job,
                seq=seq,
                entry=entry,
                origin=arrival.origin,
                events=folded.events,
                signals=folded.signals,
            )
        )
        if folded.snapshot is not None:
            self._snapshots[job_id] = folded.snapshot
        return Appended.STORED, folded.result

    def write(self, sets: SignalSets) -> None:
        """Write everything that was taken; a job of which nothing was is not made."""
        if empty := self._made - {row.job for row in self._rows}:
            self._connection.execute(delete(JobRow).where(JobRow.name.in_(empty)))
        if self._rows:
            inserts.appended(self._connection, self._rows, sets)
        for job_id, snapshot in self._snapshots.items():
            inserts.snapshot(self._connection, job_id, snapshot)
        for job_id, seq, entry in self._quarantined:
            inserts.quarantined(self._connection, job_id, seq, entry)

    def _contradicts(self, job_id: int, held: tuple[int, str], entry: Entry) -> bool:
        """Whether the row that holds the entry's key says something else; where what it said is gone, it does not."""
        seq, digest = held
        if digest == entry.digest:
            return False
        payload = self._payload(job_id, seq)
        return bool(payload) and not same(payload, entry.payload)

    def _payload(self, job_id: int, seq: int) -> str:
        """Of a row in the ledger, or on its way into it; empty where it is gone."""
        new = (row.entry.payload for row in self._rows if (row.job_id, row.seq) == (job_id, seq))
        return next(new, None) or queries.payload(self._connection, job_id, seq)

    def _key(self, arrival: Arrival) -> queries.Key:
        entry = arrival.entry
        return self._jobs[arrival.job]["id"], entry.attempt, entry.step, entry.rank


def _past(connection: Connection, job: str, job_id: int, config: str, seq: int | None = None) -> Past:
    return Past(
        job=job,
        config=config,
        seq=queries.last_seqs(connection, [job_id])[job_id] if seq is None else seq,
        snapshot=lambda: queries.snapshot(connection, job_id),
        base=lambda: queries.base(connection, job_id),
        entries=lambda after: queries.read_entries(connection, job_id, after),
    )
