"""`trimtab controls` and `trimtab mode`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from trimtab.agent.state import Mode
from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.options import AsJson, Job, Token, Url, issuer_of
from trimtab.api.cli.screen import Console
from trimtab.api.cli.tables import as_wide_as_shown, table_of
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.api.controls_view import ControlsView
from trimtab.api.routes.mode import ModeView
from trimtab.hooks.controls import ControlValue

Why = Annotated[str | None, typer.Option(help="Why, for the audit trail; needed to change something.")]


def controls(
    job: Job,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]...", help="Overrides to set; null leaves one to the run again."),
    ] = None,
    reason: Why = None,
    base_generation: Annotated[
        int | None, typer.Option(min=0, help="Change nothing if the controls are at another generation by now.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show what is wanted of a job and what is in effect, or change it by hand."""
    overrides = parsed(changes or ())
    if overrides and reason is None:
        raise UsageError("reason: missing; say why with --reason")
    with Client(url, token) as client:
        if overrides and reason is not None:
            issuer = issuer_of(token)
            view = client.patch_controls(job, overrides, reason=reason, base_generation=base_generation, issuer=issuer)
        else:
            view = client.controls(job)
    if as_json:
        print(view.model_dump_json())
    else:
        _show(view)


def mode(
    job: Job,
    wanted: Annotated[Mode | None, typer.Argument(metavar="[MODE]", help="observe, advise, approve or auto.")] = None,
    reason: Why = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show how far the agent may go with a job, or change it."""
    if wanted is not None and reason is None:
        raise UsageError("reason: missing; say why with --reason")
    with Client(url, token) as client:
        if wanted is None or reason is None:
            found = client.mode(job)
        else:
            found = client.set_mode(job, wanted, reason=reason, issuer=issuer_of(token))
    if as_json:
        print(ModeView(job=job, mode=found).model_dump_json())
    else:
        print(found.value)


def parsed(changes: Sequence[str]) -> dict[str, ControlValue | None]:
    """Overrides out of `NAME=VALUE`; a value is JSON, or else text.

    >>> parsed(["clip_high=0.24", "centering=true", "sampler_format=bf16", "clip_low=null"])
    {'clip_high': 0.24, 'centering': True, 'sampler_format': 'bf16', 'clip_low': None}

    Raises:
        UsageError: something else.
    """
    found: dict[str, ControlValue | None] = {}
    for text in changes:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"{text!r} is not NAME=VALUE, such as clip_high=0.24")
        try:
            read = json.loads(value)
        except json.JSONDecodeError:
            read = value
        if isinstance(read, dict | list):
            raise UsageError(f"{name}: {value} is no boolean, number or text")
        found[name] = read
    return found


def _show(view: ControlsView) -> None:
    console = Console()
    table = table_of("control", "in effect", "wanted", "by", "takes effect")
    for one in view.controls:
        wanted = "" if one.desired is None else str(one.desired)
        by = ("a person" if one.by_person else "the agent") if wanted else ""
        table.add_row(
            one.name, Text("-" if one.applied is None else str(one.applied)), Text(wanted), by, one.liveness.value
        )
    as_wide_as_shown().print(table, highlight=False)
    agrees = "in effect" if view.in_sync else "not in effect yet"
    console.print(f"generation {view.generation}, {agrees}", highlight=False)
    for told in (*view.refusals, view.locked, "the kill switch is set" if view.killed else ""):
        if told:
            console.print(told, style="yellow", highlight=False, soft_wrap=True)
