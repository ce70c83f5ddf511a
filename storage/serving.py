"""One server for one SQLite file.

Two would each keep states in memory, deliver the same alerts and wait for each other's writes. The lock is on a file
beside the database, since closing any other handle of the database itself would let go of SQLite's own locks; the
kernel releases it however the process ends. Agents inside trainers do not take it: they may share a file with a server.
On PostgreSQL servers are meant to be several.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError

SUFFIX = ".lock"


@contextmanager
def sole_server(database: Database) -> Iterator[None]:
    """Be the one server of the database while the block runs. Raises `StorageError` where another is."""
    if database.dialect != "sqlite":
        yield
        return
    path = Path(database.name).resolve()  # one file may have several names
    if path.stat().st_nlink > 1:  # SQLite's log goes by the name, so two names of one file are two logs
        raise StorageError(f"db: {path} has another name as well (a hard link); leave it one, and try again")
    lock = path.with_name(path.name + SUFFIX)
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"db: {lock} cannot be made ({error.strerror}); a server needs to write there") from error
    with os.fdopen(handle, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = file.read().strip()
            raise StorageError(
                f"db: {path} is served already{f' by process {holder}' if holder else ''}; end that server, give "
                "another file, or give a PostgreSQL database, which several servers may share"
            ) from None
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
