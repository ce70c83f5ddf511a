"""`trimtab export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.api.cli.lines import write_lines
from trimtab.api.ledgers import open_to_read
from trimtab.storage.ledger_file import lines


def export(
    job: Annotated[str, typer.Argument(help="Name of the job.")],
    db: Annotated[Path, typer.Option(help="SQLite file of the agent; it may be in use.")] = Path("trimtab.db"),
    out: Annotated[
        Path | None,
        typer.Option(help="File to write, gzipped where its name ends in .gz; standard output when it is missing."),
    ] = None,
) -> None:
    """Write a job's ledger, settings, events and state as JSON lines, for `trimtab replay`."""
    write_lines(out, lines(open_to_read(db).recorded(job)))
