"""`trimtab export`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from trimtab.api.cli.errors import UsageError
from trimtab.storage.engine import StorageError
from trimtab.storage.ledger_file import lines
from trimtab.storage.store import Store


def open_to_read(db: Path) -> Store:
    """The store in an existing file, which is left as it is.

    Raises:
        StorageError: there is no such file, or its schema is not this version's.
    """
    if not db.is_file():
        raise StorageError(f"db: there is no file {db}; `trimtab serve --db {db}` makes one")
    store = Store(db, read_only=True)
    found = store.revision()
    if found.current is None:
        raise StorageError(f"db: {db} is no database of trimtab's")
    if not found.known:
        raise StorageError(f"db: {db} was written by a newer version (schema {found.current}); upgrade trimtab")
    if not found.is_newest:
        raise StorageError(
            f"db: {db} is of an older version (schema {found.current}, and this one reads {found.head}), and reading "
            f"does not change it; start `trimtab serve --db {db}` once, or do so with a copy"
        )
    return store


def export(
    job: Annotated[str, typer.Argument(help="Name of the job.")],
    db: Annotated[Path, typer.Option(help="SQLite file of the agent; it may be in use.")] = Path("trimtab.db"),
    out: Annotated[Path | None, typer.Option(help="File to write; standard output when it is missing.")] = None,
) -> None:
    """Write a job's ledger, settings, events and state as JSON lines, for `trimtab replay`."""
    record = open_to_read(db).recorded(job)
    if out is None:
        for line in lines(record):
            sys.stdout.write(line + "\n")
        return
    try:
        _write(out, lines(record))
    except OSError as error:
        raise UsageError(f"out: {out} cannot be written ({error.strerror})") from error


def _write(out: Path, wanted: Iterator[str]) -> None:
    """Into a file all at once or not at all; into a pipe, a device or the like as it is."""
    if out.exists() and not out.is_file():
        with out.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in wanted)
        return
    target = out.resolve()  # a link stays one
    partial = target.with_name(target.name + ".part")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in wanted)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
