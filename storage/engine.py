"""A database engine whose transactions begin when we say so.

SQLite: write-ahead log, so readers never wait for the writer; NORMAL sync, safe against a killed process; foreign keys
on; 5 s of patience with another process that writes. A write begins with BEGIN IMMEDIATE: a transaction that starts as
a reader and then writes gets SQLITE_BUSY at once, whatever the timeout. A file opened read-only may be in use, and is
left as it is.

PostgreSQL: a server that cannot be reached is given up after seconds and not minutes, so that trainers are told to come
again.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

BUSY_TIMEOUT_MS = 5000
CONNECT_TIMEOUT_S = 5
POOL_TIMEOUT_S = 10
"""Seconds to wait for a connection while all are in use."""


SERVER_PATIENCE_S = {"lock_timeout": 3, "idle_in_transaction_session_timeout": 60}
"""After which PostgreSQL gives up waiting for what another session holds, and takes it from a session that has gone
silent in the middle of a transaction: a replica that hangs must not hang the others."""


class StorageError(RuntimeError):
    """The database cannot be opened or used; the message says what to do."""


def open_engine(target: str | Path, *, read_only: bool = False) -> Engine:
    """An engine on a database URL, or on the SQLite file at a path, which alone can be opened read-only.

    Raises:
        StorageError: the URL is malformed, or the file's folder does not exist.
    """
    text = str(target)
    url: URL | str = text
    if "://" not in text:
        path = Path(text).expanduser().absolute()
        if not path.parent.is_dir():
            raise StorageError(f"db: the folder {path.parent} does not exist; make it, or give another path")
        if path.is_dir():
            raise StorageError(f"db: {path} is a folder; give the path of a file")
        url = _read_only(path) if read_only else URL.create("sqlite", database=str(path))
    try:
        parsed = make_url(url)
        engine = create_engine(parsed, **_patience(parsed))
    except (ArgumentError, ImportError) as error:
        raise StorageError(f"db: {text!r} cannot be used: {error}") from error
    if engine.dialect.name == "sqlite":
        if not read_only and "://" not in text:
            _keep_to_ourselves(path)
        event.listen(engine, "connect", _only_read_sqlite if read_only else _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def missing_file(target: str) -> str | None:
    """The SQLite file that a path or URL is of, where there is none; None where there is, or it is of a server's."""
    if "://" not in target:
        path: str | None = str(Path(target).expanduser())
    else:
        try:
            url = make_url(target)
        except ArgumentError:
            return None  # told when it is opened
        path = url.database if url.get_backend_name() == "sqlite" else None
    # As SQLite has it, ":memory:" and "" are no files, nor are names such as "file:x.db?uri=true".
    return None if not path or path.startswith((":", "file:")) or Path(path).is_file() else path


def _keep_to_ourselves(path: Path) -> None:
    """Make a new file one that only its owner reads: it holds the secrets of webhooks. SQLite's others follow it."""
    with contextlib.suppress(OSError):  # what is wrong with the path is told when the database is opened
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _patience(url: URL) -> dict[str, Any]:
    """How long a server that does not answer is waited for, where the URL does not say (`?connect_timeout=`)."""
    if url.get_backend_name() != "postgresql":
        return {}
    own: dict[str, Any] = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_TIMEOUT_S}
    if "options" not in url.query:
        own["options"] = " ".join(f"-c {name}={seconds}s" for name, seconds in SERVER_PATIENCE_S.items())
    return {"connect_args": own, "pool_timeout": POOL_TIMEOUT_S}


def _read_only(path: Path) -> URL:
    """The file as a URI. In a folder that cannot be written to, a log cannot be opened: without one, none is needed."""
    frozen = not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists()
    query = {"uri": "true", **({"immutable": "1"} if frozen else {"mode": "ro"})}
    return URL.create("sqlite", database=path.as_uri(), query=query)


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions behind our back
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", f"busy_timeout={BUSY_TIMEOUT_MS}", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _only_read_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}").close()


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("write") else "BEGIN")
