"""One database: where transactions begin and end.

Threads may share a database, processes its file. On SQLite writers queue here, fairly, instead of in its busy loop; on
PostgreSQL they run side by side, and what they must not do at once they lock for themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from trimtab.storage.engine import StorageError, open_engine
from trimtab.storage.migrate import Revision, migrate, revision


class Database:
    """A database that is open. What is kept in it is the business of the repositories, a class for each concern."""

    def __init__(self, target: str | Path, *, read_only: bool = False) -> None:
        """Open a database URL, or the SQLite file at a path; raises `StorageError` when that cannot be."""
        self.engine = open_engine(target, read_only=read_only)
        self._writer = threading.Lock() if self.dialect == "sqlite" else nullcontext()
        # A reader sees one moment of the database, as on SQLite it always does.
        repeatable = {} if self.dialect == "sqlite" else {"isolation_level": "REPEATABLE READ"}
        self._reader = self.engine.execution_options(**repeatable)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.engine.dialect.name

    @property
    def name(self) -> str:
        """What it is called in messages: never with a password."""
        url = self.engine.url
        return str(url.database) if self.dialect == "sqlite" else url.render_as_string(hide_password=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads, all of it as of one moment."""
        with self._reader.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that writes; it is undone when the block raises."""
        with self._writer, self.engine.connect().execution_options(write=True) as connection, connection.begin():
            yield connection

    def migrate(self) -> None:
        """Bring the schema up to date. Raises `StorageError` when it is newer than this program or cannot be read."""
        try:
            with self._writer, self.engine.connect().execution_options(write=True) as connection:
                migrate(connection)
        except DBAPIError as error:
            raise StorageError(f"db: {self.name} cannot be used: {error.orig}") from error

    def revision(self) -> Revision:
        """Where the schema stands. Raises `StorageError` when the database cannot be read."""
        try:
            with self.read() as connection:
                return revision(connection)
        except DBAPIError as error:
            raise StorageError(f"db: {self.name} cannot be used: {error.orig}") from error

    def not_ready(self) -> list[str]:
        """Why the database cannot serve, one line a reason; empty when it can."""
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
        """Close the connections; the database cannot be used afterwards."""
        self.engine.dispose()
