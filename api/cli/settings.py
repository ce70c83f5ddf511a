"""`trimtab settings`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

import typer
from rich.text import Text

from trimtab.agent.config import AgentConfig
from trimtab.api.cli.options import AsJson, Job, Token, Url
from trimtab.api.cli.tables import as_wide_as_shown, table_of
from trimtab.api.client import DEFAULT_URL, Client


def settings(
    job: Job,
    everything: Annotated[
        bool, typer.Option("--all", help="Those that are as they are without being set, too.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show what a job's agent was set up with."""
    with Client(url, token) as client:
        view = client.settings(job)
    if as_json:
        print(view.model_dump_json())
        return
    usual = dict(_leaves(AgentConfig()))
    table = table_of("setting", "value", "default")
    for name, value in _leaves(view.config):
        if everything or value != usual[name]:
            table.add_row(*map(Text, (name, _written(value), "" if value == usual[name] else _written(usual[name]))))
    console = as_wide_as_shown()
    console.print(table if table.row_count else f"{job}: every setting is the default", highlight=False)


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting by its dotted name."""
    for field in fields(node):
        name, value = f"{path}{field.name}", getattr(node, field.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def _written(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
