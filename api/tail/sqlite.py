"""A SQLite file of another program, read only.

With a write-ahead log beside it, somebody may be writing: it is opened `mode=ro`, which needs the `-shm` file and so,
where that is not there, the right to make it. Without one, nobody is, and it is opened `immutable`, which makes no file
at all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trimtab.api.tail.files import unreadable
from trimtab.api.tail.source import Piece, Place, Row, Skipped, TailError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table `metrics` of another program, of several runs, whose rows are numbered as they come."""

    program: str
    columns: frozenset[str]
    """By which it is told."""
    run: str
    """The column that names a run."""
    number: str
    """The column of the row's number."""
    select: str
    """What is read of a row beside it."""


def read_run(
    path: Path, place: Place, run: str | None, table: Table, row_of: Callable[[Sequence[Any], Skipped], Row | None]
) -> Piece:
    """The rows since `place` of one run.

    Args:
        path: of the file.
        place: where to go on.
        run: the run; None for that of `place`, or the newest.
        table: where they are.
        row_of: makes a row of what is selected, and counts what it has to pass over; None where nothing is left.

    Raises:
        TailError: the file cannot be read, or has no such table.
    """
    there = identity(path)
    with opened(path) as connection:
        if not columns(connection, "metrics") >= table.columns:
            raise TailError(f"{path}: has no table `metrics` of {table.program}; give its database, or use --as")
        run = run or place.get("run")
        if run is None:
            query = f"SELECT {table.run} FROM metrics ORDER BY {table.number} DESC LIMIT 1"
            newest = rows_of(connection, query, ())
            if not newest:
                return Piece(rows=(), place=place)
            (run,) = newest[0]
        last = rows_of(connection, f"SELECT max({table.number}) FROM metrics", ())[0][0] or 0
        known = {name: place.get(name) for name in ("run", *there)}
        begun = bool(place) and (known != {"run": run, **there} or place.get("row", 0) > last)
        after = 0 if begun else place.get("row", 0)
        query = (
            f"SELECT {table.number}, {table.select} FROM metrics WHERE {table.run} = ? AND {table.number} > ? "
            f"ORDER BY {table.number} LIMIT {BATCH}"
        )
        found = rows_of(connection, query, (run, after))
    skipped = Skipped()
    rows = [Row(step=None, restart=True)] if begun else []
    rows += [row for _, *selected in found if (row := row_of(selected, skipped)) is not None]
    number = found[-1][0] if found else after
    place = {**there, "run": run, "row": number}
    return Piece(rows=tuple(rows), place=place, more=len(found) == BATCH, skipped=skipped)
