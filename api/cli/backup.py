"""`trimtab backup`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.api.cli.options import Db
from trimtab.api.cli.screen import Console
from trimtab.storage.backup import back_up
from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError, missing_file


def backup(
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    db: Db = "trimtab.db",
) -> None:
    """Write the whole database to one file, while it is served: for `trimtab restore`, on either kind of database."""
    if missing := missing_file(db):
        raise StorageError(f"db: there is no file {missing}")
    database = Database(db)
    back_up(database, file)
    database.close()
    size = file.expanduser().stat().st_size / 1e6
    Console().print(f"{file}: {size:.1f} MB, readable by you alone", highlight=False, soft_wrap=True)
