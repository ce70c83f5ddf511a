"""`trimtab backup`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trimtab.api.cli.options import Db
from trimtab.storage.backup import back_up
from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError


def backup(
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    db: Db = "trimtab.db",
) -> None:
    """Write the whole database to one file, while it is served: for `trimtab restore`, on either kind of database."""
    if "://" not in db and not Path(db).is_file():
        raise StorageError(f"db: there is no file {db}")
    database = Database(db)
    back_up(database, file)
    database.close()
    size = file.expanduser().stat().st_size / 1e6
    Console().print(f"{file}: {size:.1f} MB, readable by you alone", highlight=False, markup=False, soft_wrap=True)
