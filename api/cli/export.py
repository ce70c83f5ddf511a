"""`trimtab export`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from trimtab.storage.engine import StorageError
from trimtab.storage.ledger_file import lines
from trimtab.storage.store import Store


def open_existing(db: Path) -> Store:
    """The store in an existing file. Raises `StorageError`."""
    if not db.is_file():
        raise StorageError(f"db: there is no file {db}; `trimtab serve --db {db}` makes one")
    store = Store(db)
    store.migrate()
    return store


def export(
    job: Annotated[str, typer.Argument(help="Name of the job.")],
    db: Annotated[Path, typer.Option(help="SQLite file of the agent.")] = Path("trimtab.db"),
    out: Annotated[Path | None, typer.Option(help="File to write; standard output when it is missing.")] = None,
) -> None:
    """Write a job's ledger, settings, events and state as JSON lines, for `trimtab replay`."""
    record = open_existing(db).recorded(job)
    if out is None:
        for line in lines(record):
            sys.stdout.write(line + "\n")
        return
    partial = out.with_name(out.name + ".part")
    with partial.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines(record))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(out)
