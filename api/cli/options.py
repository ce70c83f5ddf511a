"""Options that several commands have."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

Url = Annotated[str, typer.Option(envvar="TRIMTAB_URL", help="Where the agent serves.")]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="TRIMTAB_TOKEN",
        help="Token, where the agent asks for one; better in the variable, since everybody on the machine sees a "
        "command line.",
        show_default=False,
    ),
]
Job = Annotated[str, typer.Argument(help="Name of the job.")]
Detector = Annotated[str, typer.Argument(help="Name of the detector, as `trimtab incidents` tells it.")]
Reason = Annotated[str, typer.Option(help="Why, for the audit trail.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print what the API answers.")]
Db = Annotated[
    str,
    typer.Option(
        envvar="TRIMTAB_DB",
        help="SQLite file, or URL of a PostgreSQL database (postgresql+psycopg://USER@HOST/NAME); where that holds a "
        "password, better in the variable, since everybody on the machine sees a command line.",
    ),
]


def issuer_of(token: str | None) -> str | None:
    """Who asks for a change: whoever is logged in here, or None where a token says it better, even in a container."""
    return getpass.getuser() if token is None else None
