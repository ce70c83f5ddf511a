"""`trimtab audit`: what was done, by whom, and whether that record is whole."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.lines import write_lines
from trimtab.api.cli.options import Db
from trimtab.api.cli.screen import Console
from trimtab.api.ledgers import database_to_read
from trimtab.storage.audit import Audit, BrokenChainError, Head, Link, line, link_of, verified

audit = typer.Typer(help="Check and export the audit log.", add_completion=False, no_args_is_help=True)


@audit.command()
def verify(
    db: Db = "trimtab.db",
    file: Annotated[
        Path | None, typer.Option(help="Check an export (JSON lines) in the place of the database.")
    ] = None,
    noted: Annotated[
        list[str] | None,
        typer.Option(metavar="NUMBER:HASH", help="A head that was noted earlier and must still be there; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Walk the chain of the audit log, and name the first row that does not fit. Exits with 1 where one does not."""
    heads = [_head(text) for text in noted or ()]
    links = _exported(file) if file is not None else Audit(database_to_read(db)).links()
    try:
        head = verified(links, heads)
    except BrokenChainError as error:
        if as_json:
            print(json.dumps({"ok": False, "row": error.number, "problem": str(error)}))
        else:
            Console(stderr=True, soft_wrap=True).print(f"broken: {error}", style="red", highlight=False)
        raise typer.Exit(1) from error
    if as_json:
        print(json.dumps({"ok": True, "rows": head.number, "head": f"{head.number}:{head.hash}"}))
        return
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{head.number} rows, unbroken", style="green")
    console.print(f"head: {head.number}:{head.hash}")
    console.print("Note it elsewhere: given as --noted later, it tells a log that was cut short or written anew.")


@audit.command()
def export(
    db: Db = "trimtab.db",
    out: Annotated[
        Path | None,
        typer.Option(help="File to write, gzipped where its name ends in .gz; standard output when it is missing."),
    ] = None,
) -> None:
    """Write the audit log as JSON lines, which `trimtab audit verify --file` checks wherever they are kept."""
    write_lines(out, map(line, Audit(database_to_read(db)).links()))


def _exported(file: Path) -> Iterator[Link]:
    try:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open(encoding="utf-8") as opened:
            for number, text in enumerate(opened, start=1):
                try:
                    yield link_of(text)
                except ValueError as error:
                    raise UsageError(f"file: {file}, line {number}: {error}") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UsageError(f"file: {file} cannot be read ({error})") from error


def _head(text: str) -> Head:
    match = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text)
    if match is None:
        raise UsageError(f"noted: {text!r} is no head; give one as `trimtab audit verify` prints it, NUMBER:HASH")
    return Head(number=int(match[1]), hash=match[2])
