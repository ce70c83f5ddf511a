"""`trimtab jobs`, `register`, `attempts` and `archive`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.agent.config import AgentConfig, with_settings
from trimtab.agent.state import Mode, State
from trimtab.api.cli.options import AsJson, Job, Reason, Token, Url, issuer_of
from trimtab.api.cli.screen import Console
from trimtab.api.cli.status import show_jobs
from trimtab.api.cli.tables import as_wide_as_shown, moment, table_of
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.api.health_view import JobView
from trimtab.api.routes.jobs import REGISTERED, Attempts, Jobs
from trimtab.api.settings_file import settings_in, settings_of
from trimtab.storage.codec import CONFIG


def jobs(
    query: Annotated[str, typer.Argument(help="Only those whose name contains this, in any case.")] = "",
    state: Annotated[list[State] | None, typer.Option(help="Only in this state; may be repeated.")] = None,
    mode: Annotated[list[Mode] | None, typer.Option(help="Only in this mode; may be repeated.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Those that were put away.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs, newest first."""
    with Client(url, token) as client:
        found = client.jobs(states=state or (), modes=mode or (), archived=archived, query=query)
    if as_json:
        print(Jobs(jobs=found, next=None).model_dump_json())
    else:
        show_jobs(Console(), found)


def register(
    job: Job,
    mode: Annotated[Mode | None, typer.Option(help="How far the agent may go; it begins in observe.")] = None,
    file: Annotated[Path | None, typer.Option("--config", help="TOML file with settings of the job's own.")] = None,
    words: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting; it goes over those of the file."),
    ] = None,
    reason: Reason = REGISTERED,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Make a job before it reports, with settings of its own: its first step fixes them, or a change such as --mode.

    Settings that are given anew replace all the former ones: what is left out has its default.
    """
    from_file, changes = settings_in(file), settings_of(words or ())
    config = with_settings(with_settings(AgentConfig(), from_file), changes)
    own: dict[str, Any] | None = json.loads(CONFIG.encode(config)) if from_file or changes else None
    with Client(url, token) as client:
        made = client.register(job, config=own, mode=mode, reason=reason, issuer=issuer_of(token))
    _report(made, f"is registered, in mode {made.mode}", as_json=as_json)


def attempts(job: Job, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Show when a job was begun anew, and how far each attempt came, the newest first."""
    with Client(url, token) as client:
        found = list(client.attempts(job))
    if as_json:
        print(Attempts(attempts=found, next=None).model_dump_json())
        return
    table = table_of("attempt", "steps", "summaries", "from", "to")
    for one in found:
        times = map(moment, (one.first_received_at, one.last_received_at))
        table.add_row(str(one.attempt), f"{one.first_step} to {one.last_step}", str(one.summaries), *times)
    as_wide_as_shown().print(table if found else "it has not reported yet", highlight=False)


def archive(
    job: Job,
    reason: Reason,
    undo: Annotated[bool, typer.Option("--undo", help="Watch it again.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Put a job away: it leaves the lists and the metrics until it reports again. Nothing is deleted."""
    with Client(url, token) as client:
        change = client.unarchive if undo else client.archive
        line = change(job, reason=reason, issuer=issuer_of(token))
    told = "is watched again" if undo else "is put away; it comes back with its next summary"
    _report(line, told, as_json=as_json)


def _report(line: JobView, told: str, *, as_json: bool) -> None:
    if as_json:
        print(line.model_dump_json())
    else:
        Console(soft_wrap=True).print(f"{line.name} {told}", highlight=False)
