"""The one way to the database: an append-only ledger per job, and what was folded from it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, func, select, update
from sqlalchemy.exc import DBAPIError

from trimtab.storage import inserts, queries
from trimtab.storage.engine import StorageError, open_engine
from trimtab.storage.migrate import Revision, revision
from trimtab.storage.migrate import migrate as migrate_schema
from trimtab.storage.tables import EventRow, JobRow, LedgerRow, QuarantineRow, SignalRow
from trimtab.storage.values import (
    Entry,
    Folded,
    Job,
    Past,
    Recorded,
    SignalSeries,
    StoredEvent,
    StoredState,
    ValueKind,
)

Result = TypeVar("Result")
Fold = Callable[[Past], Folded[Result]]
"""What an entry changes. If it raises, nothing is stored."""


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
    """Jobs, ledgers, states, events and signals in one database. Threads may share a store, processes its file.

    Every method is one short transaction. Reading methods raise `UnknownJobError` for a job that does not exist.
    """

    def __init__(self, target: str | Path, *, read_only: bool = False) -> None:
        """Open a database URL, or the SQLite file at a path; raises `StorageError` when that cannot be."""
        self._engine = open_engine(target, read_only=read_only)
        self._writer = threading.Lock()  # threads queue here, fairly, instead of in SQLite's busy loop

    def migrate(self) -> None:
        """Bring the schema up to date. Raises `StorageError` when it is newer than this program or cannot be read."""
        try:
            with self._write() as connection:
                migrate_schema(connection)
        except DBAPIError as error:
            raise StorageError(f"db: {self._engine.url.database} cannot be used: {error.orig}") from error

    def revision(self) -> Revision:
        """Where the schema stands. Raises `StorageError` when the database cannot be read."""
        try:
            with self._read() as connection:
                return revision(connection)
        except DBAPIError as error:
            raise StorageError(f"db: {self._engine.url.database} cannot be used: {error.orig}") from error

    def not_ready(self) -> list[str]:
        """Why the store cannot serve, one line a reason; empty when it can."""
        try:
            found = self.revision()
        except StorageError as error:
            return [str(error)]
        if found.is_newest:
            return []
        return [
            f"the schema is at {found.current or 'nothing'}, not at {found.head}; restart the service to migrate it"
        ]

    def close(self) -> None:
        """Close the connections; the store cannot be used afterwards."""
        self._engine.dispose()

    # Writing

    def register(self, job: str, config: str, now: float, *, keep: Callable[[str], bool]) -> None:
        """Make sure that the job exists with these settings (JSON), or with those it has where `keep` says so.

        Raises:
            ConfigFixedError: it has settings that are not kept, and a ledger that was folded with them.
        """
        with self._write() as connection:
            found = queries.find_job(connection, job)
            if found is None:
                inserts.job(connection, job, config, now)
            elif not keep(found["config"]):
                if queries.last_seq(connection, found["id"]):
                    raise ConfigFixedError(
                        f"job {job!r} has a ledger that was folded with other settings; start a job of another name, "
                        "or try the settings on what was recorded with `trimtab replay --set`"
                    )
                connection.execute(update(JobRow).where(JobRow.id == found["id"]).values(config=config))

    def append(self, job: str, entry: Entry, fold: Fold[Result], *, config_if_new: str) -> tuple[Appended, Result]:
        """Put one entry in the job's ledger, and everything that it changes beside it, in one transaction.

        A job that does not exist is registered with `config_if_new`. A repeated summary is folded for its result only.

        Raises:
            ConflictError: the key is taken by other content, which stays; this content goes to quarantine.
        """
        with self._write() as connection:
            found = queries.find_job(connection, job)
            config = config_if_new if found is None else found["config"]
            job_id = inserts.job(connection, job, config, entry.received_at) if found is None else found["id"]
            held = queries.entry_with_key(connection, job_id, entry)
            if held is None or held["digest"] == entry.digest:
                folded = fold(_past(connection, job, job_id, config))
                if held is not None:
                    return Appended.DUPLICATE, folded.result
                inserts.appended(connection, job_id, entry, folded)
                return Appended.STORED, folded.result
            inserts.quarantined(connection, job_id, held["seq"], entry)
        raise ConflictError(
            f"attempt {entry.attempt}, step {entry.step}, rank {entry.rank} of job {job!r} is already stored with "
            "other content, which stays; do two trainers share the job and the attempt?"
        )

    def rebuild(self, job: str, fold: Callable[[Past], StoredState]) -> StoredState:
        """Put what `fold` gives in the place of the job's state, in one transaction. Raises `UnknownJobError`."""
        with self._write() as connection:
            found = queries.find_job(connection, job)
            if found is None:
                raise queries.UnknownJobError(job)
            state = fold(_past(connection, job, found["id"], found["config"]))
            inserts.state(connection, found["id"], state)
            return state

    # Reading

    def jobs(self) -> list[Job]:
        """Every job, newest first."""
        with self._read() as connection:
            rows = connection.execute(queries.jobs().order_by(JobRow.id.desc())).mappings()
            return [queries.as_job(row) for row in rows]

    def job(self, name: str) -> Job:
        """One job."""
        with self._read() as connection:
            row = connection.execute(queries.jobs().where(JobRow.name == name)).mappings().one_or_none()
        if row is None:
            raise queries.UnknownJobError(name)
        return queries.as_job(row)

    def state(self, job: str) -> StoredState | None:
        """The job's state; None before its first entry, and where the cache was emptied."""
        with self._read() as connection:
            return queries.state(connection, queries.job_id(connection, job))

    def recorded(self, job: str) -> Recorded:
        """Everything about one job, as of one moment: what a replay needs and what it is compared with."""
        with self._read() as connection:
            job_id = queries.job_id(connection, job)
            return Recorded(
                job=job,
                config=connection.execute(select(JobRow.config).where(JobRow.id == job_id)).scalar_one(),
                entries=tuple(map(queries.as_entry, connection.execute(queries.entries(job_id)).mappings())),
                events=tuple(map(queries.as_event, connection.execute(queries.events(job_id)).mappings())),
                state=queries.state(connection, job_id),
            )

    def latest_summary(self, job: str) -> Entry | None:
        """The summary of rank 0 of the newest step of the newest attempt, or None."""
        with self._read() as connection:
            job_id = queries.job_id(connection, job)
            newest = queries.judged(*LedgerRow.__table__.columns).where(LedgerRow.job_id == job_id).limit(1)
            row = connection.execute(newest).mappings().one_or_none()
            return None if row is None else queries.as_entry(row)

    def arrivals(self, job: str, limit: int) -> list[float]:
        """When the newest summaries of rank 0 of the newest attempt came, the newest first; Unix seconds."""
        with self._read() as connection:
            of_job = LedgerRow.job_id == queries.job_id(connection, job)
            newest = select(func.max(LedgerRow.attempt)).where(of_job, LedgerRow.rank == queries.JUDGED_RANK)
            wanted = queries.judged(LedgerRow.received_at).where(of_job, LedgerRow.attempt == newest.scalar_subquery())
            return list(connection.execute(wanted.limit(limit)).scalars())

    def events(
        self, job: str, *, after: int = 0, limit: int | None = None, kinds: Sequence[str] = ()
    ) -> list[StoredEvent]:
        """The audit trail from `number` > `after`, ascending; only the named kinds, if any are named."""
        with self._read() as connection:
            statement = queries.events(queries.job_id(connection, job)).where(EventRow.number > after)
            if kinds:
                statement = statement.where(EventRow.kind.in_(kinds))
            return [queries.as_event(row) for row in connection.execute(statement.limit(limit)).mappings()]

    def signal_names(self, job: str) -> list[str]:
        """Names of the signals that the job has, sorted."""
        with self._read() as connection:
            job_id = queries.job_id(connection, job)
            names = select(SignalRow.name).where(SignalRow.job_id == job_id).distinct()
            return sorted(connection.execute(names).scalars())

    def attempts(self, job: str) -> list[int]:
        """Attempts that the job's summaries came from, ascending."""
        with self._read() as connection:
            job_id = queries.job_id(connection, job)
            attempts = select(LedgerRow.attempt).where(LedgerRow.job_id == job_id).distinct()
            return sorted(attempt for attempt in connection.execute(attempts).scalars() if attempt is not None)

    def signals(self, job: str, names: Sequence[str], attempt: int) -> list[SignalSeries]:
        """The named signals of one attempt, in the order asked for; one that was never seen has no steps."""
        with self._read() as connection:
            job_id = queries.job_id(connection, job)
            return [queries.series(connection, job_id, name, attempt) for name in names]

    def signals_at(self, job: str, attempt: int, step: int) -> dict[str, float]:
        """Every signal of one step, by name."""
        with self._read() as connection:
            job_id = queries.job_id(connection, job)
            names = select(SignalRow.name).where(SignalRow.job_id == job_id).distinct()
            statement = select(SignalRow.name, SignalRow.value, SignalRow.kind).where(
                SignalRow.job_id == job_id,
                SignalRow.name.in_(names),  # so that the key, which begins with the name, is searched and not scanned
                SignalRow.attempt == attempt,
                SignalRow.step == step,
            )
            return {name: ValueKind(kind).restored(value) for name, value, kind in connection.execute(statement)}

    def quarantined(self, job: str) -> int:
        """Number of the job's summaries in quarantine."""
        with self._read() as connection:
            statement = select(func.count()).where(QuarantineRow.job_id == queries.job_id(connection, job))
            return connection.execute(statement).scalar_one()

    def quarantined_at(self, job: str) -> float | None:
        """When the last summary of the job went to quarantine, Unix seconds, or None."""
        with self._read() as connection:
            job_id = queries.job_id(connection, job)
            last = select(func.max(QuarantineRow.received_at)).where(QuarantineRow.job_id == job_id)
            return connection.execute(last).scalar_one()

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self._writer, self._engine.connect().execution_options(write=True) as connection, connection.begin():
            yield connection


def _past(connection: Connection, job: str, job_id: int, config: str) -> Past:
    return Past(
        job=job,
        config=config,
        state=queries.state(connection, job_id),
        entries=lambda: queries.read_entries(connection, job_id),
    )
