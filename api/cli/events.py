"""`trimtab events`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from trimtab.agent.state import EventKind
from trimtab.api.cli.options import Job, Token, Url
from trimtab.api.cli.screen import Console
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
    told = "; ".join(_subject(event.detail))
    if told:
        yield f"  {told}", "cyan"
    if event.message:
        yield f"  {event.message}", "none"


def _subject(detail: Mapping[str, Any]) -> Iterator[str]:
    """What the message leaves out: whose verdict, from what to what, why nobody is told, and by whom."""
    of = detail.get("detector") or str(detail.get("fingerprint", "")).rpartition("/")[2]
    change = _change(detail)
    if of or change:
        yield ": ".join(filter(None, (of, change)))
    if "severity" in detail:
        yield str(detail["severity"])
    if detail.get("cause"):
        yield f"explained by {str(detail['cause']).rpartition('/')[2]}"
    if detail.get("silenced"):
        yield "silenced"
    if "proposal" in detail:
        yield f"proposal {detail['proposal']}"
    if detail.get("remedy"):
        yield str(detail["remedy"]).replace("_", " ")
    if detail.get("issuer"):
        yield f"by {detail['issuer']}"


def _change(detail: Mapping[str, Any]) -> str:
    """From what to what: a state, a mode, or each override that is another now; `-` is for none."""
    if "before" not in detail or "after" not in detail:
        return ""
    before, after = detail["before"], detail["after"]
    if not isinstance(after, Mapping):
        return _step("", before, after).strip()
    names = sorted(before.keys() | after.keys())
    changes = [_step(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]
    return ", ".join(changes)


def _step(name: str, before: Any, after: Any) -> str:
    old, new = ("-" if value is None else str(value) for value in (before, after))
    return f"{name} {old} -> {new}"
