"""`trimtab restore`."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from trimtab.api.cli.options import Db
from trimtab.api.cli.screen import Console
from trimtab.api.recovery import mark_restored, recover
from trimtab.storage.database import Database
from trimtab.storage.engine import StorageError, missing_file


def restore(
    db: Db,
    file: Annotated[
        Path | None,
        typer.Argument(help="File of `trimtab backup`; without one, the database was put back by other means."),
    ] = None,
) -> None:
    """Put a backup where there is no database, or an empty one, and tell every job that what came after it is lost.

    No agent acts until a person sets its job's mode, and none sends anything before its trainer has reported.
    """
    issuer = getpass.getuser()
    if file is not None:
        recovered = recover(file, db, issuer=issuer)
    elif missing := missing_file(db):
        raise StorageError(f"db: there is no file {missing}; give the backup that it is to be made of")
    else:
        recovered = mark_restored(Database(db), issuer=issuer)
    console = Console(soft_wrap=True)
    name = Database(db).name
    done = f"{name} was restored by other means, and is marked so" if file is None else f"{file} is restored to {name}"
    count = len(recovered.jobs)
    told = "The agent of its 1 job holds still" if count == 1 else f"The agents of its {count} jobs hold still"
    console.print(
        f"{done}. {told}: set a job's mode to let its agent act again. Revoke the tokens that were revoked since the "
        "backup: they are valid again.",
        highlight=False,
    )
    for reason in recovered.unreadable:
        Console(stderr=True, soft_wrap=True).print(f"warning: {reason}", style="yellow")
