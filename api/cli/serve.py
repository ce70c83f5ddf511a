"""`trimtab serve`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trimtab.api.server import DEFAULT_PORT, bind
from trimtab.api.server import serve as serve_until_ended
from trimtab.api.service import Service


def serve(
    db: Annotated[Path, typer.Option(help="SQLite file; it is made when it does not exist.")] = Path("trimtab.db"),
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = DEFAULT_PORT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
) -> None:
    """Run the agent: take step summaries, watch, and answer with commands."""
    listener = bind(host, port)
    service = Service.open(db)

    def ready(url: str) -> None:
        if as_json:
            print(json.dumps({"ready": True, "url": url, "db": str(db)}), flush=True)
        else:
            Console(soft_wrap=True).print(f"trimtab serves [bold]{url}[/bold] from {db} (Ctrl-C ends it)")

    serve_until_ended(service, listener, ready)
