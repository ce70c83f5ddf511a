"""`trimtab events`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from trimtab.agent.state import EventKind
from trimtab.api.cli.options import Job, Token, Url
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.storage.values import StoredEvent


def events(
    job: Job,
    kind: Annotated[list[EventKind] | None, typer.Option(help="Only of this kind; may be repeated.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Only behind the event of this number.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with those that come, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", "--jsonl", help="Print one JSON object a line.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Show what happened to a job, in order: the audit trail."""
    console = Console(soft_wrap=True, highlight=False)
    with Client(url, token) as client:
        read = client.follow if follow else client.events
        try:
            for event in read(job, after=after, kinds=kind or ()):
                if as_json:
                    print(json.dumps(asdict(event)), flush=True)
                else:
                    console.print(Text.assemble(*_line(event)))
        except KeyboardInterrupt:
            return


def _line(event: StoredEvent) -> Iterator[tuple[str, str]]:
    yield f"{event.number:>6}  {event.attempt}:{event.step}  ", "dim"
    yield event.kind.replace("_", " "), "bold"
    if event.message:
        yield f"  {event.message}", "none"
