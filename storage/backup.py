"""A whole database as one SQLite file, whichever kind it is of: to keep, to put back, or to move to the other kind.

The file is the database as of one moment, and complete in itself. It is written beside its place and moved there once
it is whole, readable by its owner alone: it holds the secrets of webhooks.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Connection, Integer, Table, func, insert, select, text
from sqlalchemy.exc import DBAPIError

from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError
from trimtab.storage.tables import Base

CHUNK = 500
"""Rows in memory at a time."""


def back_up(source: Database, file: Path) -> None:
    """Write the database to a file that does not exist yet; it may be in use meanwhile.

    Raises:
        StorageError: the file exists or cannot be written, or the database is not of this version.
    """
    if reasons := source.not_ready():
        raise StorageError(f"db: {source.name} cannot be backed up: {'; '.join(reasons)}")
    with new_file(file) as partial:
        if source.dialect == "sqlite":
            _clone(Path(source.name), partial)
        else:
            with closing(Database(partial)) as target:
                target.migrate()
                copy(source, target)
        seal(partial)


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """A path to write a new SQLite file at, which is moved to its place after the block and removed when that raises.

    Raises:
        StorageError: there is a file in its place, or what is left of one, or it cannot be written there.
    """
    file = file.expanduser().absolute()
    beside = [file.with_name(file.name + end) for end in ("", "-wal", "-shm", "-journal")]
    if there := [path for path in beside if path.exists()]:
        raise StorageError(f"file: {there[0]} exists; move it away, or give another path")
    partial = file.with_name(file.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield partial
        partial.rename(file)
        folder = os.open(file.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    except (OSError, sqlite3.Error, DBAPIError) as error:
        raise StorageError(f"file: {file} cannot be written: {error}") from error
    finally:
        for path in (partial, *(partial.with_name(partial.name + end) for end in ("-wal", "-shm", "-journal"))):
            path.unlink(missing_ok=True)


def unpacked(file: Path, partial: Path) -> Database:
    """A copy of a backup at `partial`, brought to this version's schema.

    Raises:
        StorageError: there is no such file, it is no database of ours, it is damaged, or a newer version wrote it.
    """
    if not file.is_file():
        raise StorageError(f"file: there is no file {file}")
    try:
        _clone(file, partial)
    except sqlite3.Error as error:
        raise StorageError(f"file: {file} cannot be read: {error}") from error
    database = Database(partial)
    try:
        if database.revision().current is None:
            raise StorageError(f"file: {file} is no database of trimtab's")
        database.migrate()
    except StorageError:
        database.close()
        raise
    return database


def copy(source: Database, target: Database) -> None:
    """Put every row of one database into another of the same schema, in one transaction.

    Raises:
        StorageError: the other one holds something already.
    """
    with source.read() as old, target.write() as new:
        for table in Base.metadata.sorted_tables:
            if new.execute(select(func.count()).select_from(table)).scalar_one():
                raise StorageError(f"db: {target.name} is not empty: it has rows in {table.name}; give an empty one")
            rows = old.execute(select(table), execution_options={"yield_per": CHUNK}).mappings()
            for chunk in rows.partitions(CHUNK):
                new.execute(insert(table), [dict(row) for row in chunk])
            _count_on(new, table)


def _count_on(connection: Connection, table: Table) -> None:
    """Have PostgreSQL number new rows behind the copied ones."""
    [*keys] = table.primary_key.columns
    if connection.dialect.name != "postgresql" or len(keys) != 1 or not isinstance(keys[0].type, Integer):
        return
    name = connection.execute(select(func.pg_get_serial_sequence(table.name, keys[0].name))).scalar_one()
    last = connection.execute(select(func.max(keys[0]))).scalar_one()
    if name is not None and last is not None:
        connection.execute(text("SELECT setval(:name, :last)"), {"name": name, "last": last})


def _clone(source: Path, target: Path) -> None:
    """Copy an SQLite file page by page, as of one moment."""
    uri = source.expanduser().absolute().as_uri()
    with closing(sqlite3.connect(f"{uri}?mode=ro", uri=True)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def seal(file: Path) -> None:
    """Make the file complete without a log beside it, and see that it can be read."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").close()
        [told] = connection.execute("PRAGMA quick_check(1)").fetchone()
    if told != "ok":
        raise StorageError(f"db: it is damaged: {told}")
