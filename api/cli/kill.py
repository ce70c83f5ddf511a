"""`trimtab kill`."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer
from rich.console import Console

from trimtab.api.cli.options import Token, Url
from trimtab.api.client import DEFAULT_URL, Client


def kill(
    job: Annotated[str, typer.Argument(help="Name of the job.")],
    reason: Annotated[str, typer.Option(help="Why, for the audit trail.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Lift every override of a job and take the agent's hands off it."""
    with Client(url, token) as client:
        controls = client.kill(job, reason=reason, issuer=getpass.getuser())
    Console().print(
        f"{job}: no override is wanted any more (generation {controls.generation}), and the agent only observes. "
        "Set its mode to let it act again.",
        highlight=False,
        markup=False,
    )
