"""`trimtab replay`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from trimtab.agent.config import with_settings
from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.options import Token, Url
from trimtab.api.cli.progress import bar
from trimtab.api.cli.screen import Console
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.api.ledgers import ledgers_in
from trimtab.api.problem import shown
from trimtab.api.refold import QUIET, Refolded, refolded
from trimtab.api.restore import config_of
from trimtab.api.routes.replay import ReplayView
from trimtab.api.settings_file import settings_in, settings_of


def replay(
    ledger: Annotated[Path, typer.Argument(help="A file that `trimtab export` wrote, or the agent's SQLite file.")],
    job: Annotated[
        str | None, typer.Option(help="Which job of an SQLite file; all of them when it is missing.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--config", help="TOML file: fold under these settings, and say what would differ."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="The same of one setting; it goes over those of the file."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the decisions even of several jobs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome of every job as JSON.")] = False,
    server: Annotated[
        bool, typer.Option("--server", help="LEDGER is the name of a job, and the service replays it.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Fold recorded runs again and check that every event and the last state come out the same.

    Exits with 1 when those of any job do not; under other settings (--config, --set) a difference is the answer and
    not a failure. The file is only read, and may be in use.
    """
    changes = settings_of(settings or ())
    changed = file is not None or bool(changes)
    from_file = settings_in(file)
    if server:
        _ask(str(ledger), {**from_file, **changes}, url, token, as_json=as_json)
        return
    rows, jobs = ledgers_in(ledger, job)
    if not sum(rows.values()):
        raise UsageError(f"job: the ledger of {', '.join(rows) or 'every job'} is empty; there is nothing to replay")
    outcomes = []
    with bar("folding again", sum(rows.values()), quiet=as_json) as watch:
        for recorded in jobs:
            config = with_settings(with_settings(config_of(recorded.job, recorded.config), from_file), changes)
            outcomes.append(refolded(recorded, config, watch))
    identical = all(outcome.difference is None for outcome in outcomes)
    if as_json:
        each = [{**asdict(outcome), "identical": outcome.difference is None} for outcome in outcomes]
        print(json.dumps({"identical": identical, "jobs": each}))
    else:
        console = Console()
        for outcome in outcomes:
            if verbose or len(outcomes) == 1:
                _show_decisions(console, outcome)
            _show_line(console, outcome, changed=changed)
    if not changed and any(outcome.difference is not None and not outcome.relearnt for outcome in outcomes):
        raise typer.Exit(1)


def _ask(job: str, settings: dict[str, Any], url: str, token: str | None, *, as_json: bool) -> None:
    """Have the service replay a job. Raises `typer.Exit` where the same settings make something else of it."""
    with Client(url, token) as client:
        done = client.replay(job, settings)
    if as_json:
        print(ReplayView(job=job, settings=settings, replayed=done).model_dump_json())
    else:
        what = "identical" if done.identical else f"{done.gone_total} decisions fall away, {done.added_total} come"
        console = Console(soft_wrap=True, highlight=False)
        console.print(f"{job}: {done.entries} entries: {what}")
        for events, mark in ((done.gone, "-"), (done.added, "+")):
            for event in events:
                where = f"{event['attempt']}:{event['step']}"
                console.print(f"{mark} {where}  {event['kind'].replace('_', ' ')}  {event['message']}")
    if not settings and not done.identical and not done.relearnt:
        raise typer.Exit(1)


def _show_decisions(console: Console, outcome: Refolded) -> None:
    table = Table("attempt", "step", "what", "why", box=None, header_style="dim")
    for event in outcome.events:
        if event["kind"] not in QUIET:
            kind = event["kind"].replace("_", " ")
            table.add_row(str(event["attempt"]), str(event["step"]), kind, Text(event["message"]))
    console.print(table)


def _show_changes(console: Console, outcome: Refolded) -> None:
    """Decisions that fell away, and those that came, in the order of their steps."""
    marked = [(event, "-", "red") for event in outcome.gone] + [(event, "+", "green") for event in outcome.added]
    table = Table("", "attempt", "step", "what", "why", box=None, header_style="dim")
    for event, mark, style in sorted(marked, key=lambda one: (one[0]["attempt"], one[0]["step"], one[1] == "+")):
        where = str(event["attempt"]), str(event["step"])
        table.add_row(Text(mark, style), *where, event["kind"].replace("_", " "), Text(event["message"]))
    console.print(table)


def _show_line(console: Console, outcome: Refolded, *, changed: bool) -> None:
    begun = "" if outcome.first == 1 else f" from {outcome.first} on, since what came before is gone"
    told = f"{outcome.job}: {outcome.entries} entries{begun}, {len(outcome.events)} events: "
    difference = outcome.difference
    if difference is None:
        compared = outcome.state_compared or not outcome.entries
        rest = "" if compared else " (events only: no state of this version is stored of its last row)"
        console.print(Text.assemble(told, ("identical", "green"), rest), highlight=False, soft_wrap=True)
        return
    what = "differs under these settings" if changed else "NOT identical"
    if outcome.relearnt:
        what = "differs, as the state before that is another version's, and the agent learns again"
    lines = (
        f"{told}{what}; first at {difference.where}",
        f"  stored    {shown(difference.stored)}",
        f"  replayed  {shown(difference.replayed)}",
    )
    for line, style in zip(lines, ("yellow" if changed or outcome.relearnt else "red", "none", "none"), strict=True):
        console.print(line, style=style, highlight=False, soft_wrap=True)
    if changed and (outcome.gone or outcome.added):
        _show_changes(console, outcome)
