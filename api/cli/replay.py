"""`trimtab replay`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from trimtab.agent.config import with_settings
from trimtab.agent.state import EventKind
from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.export import open_existing
from trimtab.api.problem import shown
from trimtab.api.refold import Refolded, config_of, refolded
from trimtab.storage.ledger_file import read
from trimtab.storage.values import Recorded

QUIET = {EventKind.VERDICT_CHANGED.value, EventKind.INCIDENT_PENDING.value}
"""Kinds that a table of decisions leaves out."""


def replay(
    ledger: Annotated[Path, typer.Argument(help="A file that `trimtab export` wrote, or the agent's SQLite file.")],
    job: Annotated[str | None, typer.Option(help="Which job; needed when the SQLite file holds several.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Fold under another setting, and say what would differ."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Fold a recorded run again and check that every event and the last state come out the same.

    Exits with 1 when they do not; under other settings (--set) a difference is the answer and not a failure.
    """
    recorded = _load(ledger, job)
    if not recorded.entries:
        raise UsageError(f"job: {recorded.job!r} has an empty ledger; there is nothing to replay")
    config = with_settings(config_of(recorded), dict(_parsed(text) for text in settings or ()))
    outcome = refolded(recorded, config)
    if as_json:
        print(json.dumps({**asdict(outcome), "identical": outcome.difference is None}))
    else:
        _show(Console(), outcome, changed=bool(settings))
    if outcome.difference is not None and not settings:
        raise typer.Exit(1)


def _load(ledger: Path, job: str | None) -> Recorded:
    if not ledger.exists():
        raise UsageError(f"ledger: there is no file {ledger}")
    with ledger.open("rb") as file:
        is_database = file.read(16) == b"SQLite format 3\0"
    if not is_database:
        recorded = read(ledger)
        if job not in (None, recorded.job):
            raise UsageError(f"job: {ledger} holds {recorded.job!r}, not {job!r}")
        return recorded
    store = open_existing(ledger)
    names = [known.name for known in store.jobs()]
    if job is None and len(names) != 1:
        raise UsageError(f"job: {ledger} holds {', '.join(names) or 'no job'}; name one with --job")
    return store.recorded(names[0] if job is None else job)


def _parsed(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--set: {text!r} is not NAME=VALUE, such as detectors.mismatch.std_limit=0.3")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _show(console: Console, outcome: Refolded, *, changed: bool) -> None:
    table = Table("attempt", "step", "what", "why", box=None, header_style="dim")
    for event in outcome.events:
        if event["kind"] not in QUIET:
            table.add_row(str(event["attempt"]), str(event["step"]), event["kind"].replace("_", " "), event["message"])
    console.print(table)
    told = f"{outcome.job}: {outcome.entries} entries, {len(outcome.events)} events: "
    difference = outcome.difference
    if difference is None:
        console.print(f"{told}[green]identical[/green]", highlight=False)
        return
    what = "differs under these settings" if changed else "NOT identical"
    console.print(f"{told}{what}; first at {difference.where}", style="yellow" if changed else "red", markup=False)
    console.print(f"  stored    {shown(difference.stored)}", markup=False)
    console.print(f"  replayed  {shown(difference.replayed)}", markup=False)
