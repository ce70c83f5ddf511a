"""A SQLite file of another program, read only.

With a write-ahead log beside it, somebody may be writing: it is opened `mode=ro`, which needs the `-shm` file and so,
where that is not there, the right to make it. Without one, nobody is, and it is opened `immutable`, which makes no file
at all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trimtab.api.tail.files import unreadable
from trimtab.api.tail.source import TailError

MAGIC = b"SQLite format 3\0"
BUSY_S = 5.0
LONGEST = 1 << 20
"""Bytes of a text."""
BATCH = 2000
"""Rows that are read at once."""


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write. Raises `TailError` where there is none, and where reading fails."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise unreadable(path, error) from error
    if not os.access(path, os.R_OK):
        raise unreadable(path, PermissionError())
    how = "mode=ro&immutable=1" if status.st_size and _at_rest(path) else "mode=ro"
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?{how}", uri=True, timeout=BUSY_S)
        try:
            connection.text_factory = lambda data: data.decode(errors="replace")  # one text that is none ends nothing
            connection.execute("PRAGMA query_only = ON")
            yield connection
        finally:
            connection.close()
    except (sqlite3.Error, OverflowError) as error:
        raise TailError(
            f"{path}: cannot be read as SQLite: {error}; run the tail as the job's user, since reading beside a writer "
            "needs the right to its folder"
        ) from error


def _at_rest(path: Path) -> bool:
    """It is one with a write-ahead log, which is not there. Any other has locks that say who writes."""
    with open(path, "rb") as file:
        return file.read(20)[18:20] == b"\2\2" and not path.with_name(f"{path.name}-wal").exists()


def identity(path: Path) -> dict[str, int]:
    """What tells another file under the path from this one. Raises `TailError`."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise unreadable(path, error) from error
    return {"device": found.st_dev, "inode": found.st_ino}


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Names of the columns of a table; empty where there is no such table."""
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def rows_of(connection: sqlite3.Connection, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What a query gives."""
    return connection.execute(query, values).fetchall()
