"""Recorded runs in files: an agent's SQLite file, or what `trimtab export` wrote of one job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trimtab.api.errors import UserError
from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError, missing_file
from trimtab.storage.ledger_file import read
from trimtab.storage.store import Store
from trimtab.storage.values import Recorded


class LedgerError(UserError):
    """A ledger that is not there, or holds another job than the one asked for."""


def open_to_read(db: Path) -> Store:
    """The store in an existing file, which is left as it is.

    Raises:
        StorageError: there is no such file, or its schema is not this version's.
    """
    return Store(database_to_read(str(db)))


def database_to_read(db: str) -> Database:
    """The database in an existing file, or at a URL, which is left as it is.

    Raises:
        StorageError: there is none, or its schema is not this version's.
    """
    if missing := missing_file(db):
        raise StorageError(f"db: there is no file {missing}; `trimtab serve --db {missing}` makes one")
    is_url = "://" in db
    database = Database(db, read_only=not is_url)
    db = database.name if is_url else db
    found = database.revision()
    if found.current is None:
        raise StorageError(f"db: {db} is no database of trimtab's")
    if not found.known:
        raise StorageError(f"db: {db} was written by a newer version (schema {found.current}); upgrade trimtab")
    if not found.is_newest:
        raise StorageError(
            f"db: {db} is of an older version (schema {found.current}, and this one reads {found.head}), and reading "
            f"does not change it; start `trimtab serve --db {db}` once, or do so with a copy"
        )
    return database


def ledgers_in(path: Path, job: str | None) -> tuple[dict[str, int], Iterator[Recorded]]:
    """The length of each job's ledger in a file, and the jobs themselves, one at a time; only `job` where it is named.

    Raises:
        LedgerError: there is no such file, or it is an export of another job.
        LedgerFileError, StorageError, UnknownJobError: it cannot be read, or there is no such job in it.
    """
    if not path.is_file():
        raise LedgerError(f"ledger: there is no file {path}")
    with path.open("rb") as file:
        is_database = file.read(16) == b"SQLite format 3\0"
    if not is_database:
        recorded = read(path)
        if job not in (None, recorded.job):
            raise LedgerError(f"job: {path} holds {recorded.job!r}, not {job!r}")
        return {recorded.job: len(recorded.entries)}, iter((recorded,))
    store = open_to_read(path)
    known = store.jobs() if job is None else [store.job(job)]
    rows = {each.name: each.rows for each in reversed(known)}
    return rows, map(store.recorded, rows)


def recorded_in(path: Path, job: str | None) -> Recorded:
    """The one job of a file, or the one that is named; raises what `ledgers_in` does.

    Raises:
        LedgerError: there are several, and none is named.
    """
    rows, jobs = ledgers_in(path, job)
    if len(rows) != 1:
        raise LedgerError(f"job: {path} holds {', '.join(rows) or 'none'}; name the one that is meant")
    return next(jobs)
