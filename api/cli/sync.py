"""`trimtab sync`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.options import Token, Url
from trimtab.api.cli.screen import Console
from trimtab.api.client import DEFAULT_URL
from trimtab.hooks.transport.delivery import deliver


def sync(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What a `file:DIR` run recorded, or what an agent that was away missed."),
    ],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Deliver recorded step summaries to an agent, oldest first, and take them off the disk.

    Exits with 1 when any was refused (it is kept in DIR/rejected) or is left; doing it again is safe.
    """
    if not folder.is_dir():
        raise UsageError(f"DIR: there is no folder {folder}")
    try:
        done = deliver(folder, url, token)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    if as_json:
        print(json.dumps(asdict(done)))
    else:
        console = Console(soft_wrap=True, highlight=False)
        console.print(f"{done.sent} summaries delivered to {url}")
        if done.rejected:
            console.print(f"{done.rejected} refused for good, kept in {folder / 'rejected'}")
        if done.damaged:
            console.print(f"{done.damaged} lost: damaged on the disk")
        if done.left:
            away = f"nothing answers at {url}, or it asked for a pause"
            why = f"{url} does not let us in: {done.barred}" if done.barred else away
            console.print(f"{done.left} left: {why}")
    if done.rejected or done.left:
        raise typer.Exit(1)
