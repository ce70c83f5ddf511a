"""Options that every command which asks a service has."""

from __future__ import annotations

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
