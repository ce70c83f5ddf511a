"""`trimtab jobs` and `trimtab archive`."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer
from rich.console import Console

from trimtab.agent.state import Mode, State
from trimtab.api.cli.options import AsJson, Job, Reason, Token, Url
from trimtab.api.cli.status import show_jobs
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.api.routes.jobs import Jobs


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
        line = change(job, reason=reason, issuer=getpass.getuser())
    if as_json:
        print(line.model_dump_json())
    else:
        told = "is watched again" if undo else "is put away; it comes back with its next summary"
        Console(soft_wrap=True).print(f"{job} {told}", markup=False, highlight=False)
