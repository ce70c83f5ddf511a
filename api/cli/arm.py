"""`trimtab arm`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.screen import Console
from trimtab.hooks.armed.install import Armed, InstallError, Site
from trimtab.hooks.armed.process import armed_processes


def arm(
    undo: Annotated[bool, typer.Option("--undo", help="Take the stub away again.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Say what is there, and change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Let every Python process of this environment be attached to while it runs (`trimtab attach`).

    Puts a `.pth` and one module into its site-packages. A process that starts from then on handles one signal, SIGURG,
    and does nothing else until it is contacted; with TRIMTAB_DISABLE=1 in its environment not even that. Processes that
    run already are not armed.
    """
    if undo and status:
        raise UsageError("undo, status: give one of them")
    site = Site.of_this_python()
    try:
        if undo:
            site.undo()
        elif not status:
            site.arm()
    except InstallError as error:
        raise UsageError(str(error)) from error
    armed = site.armed()
    running = [{"pid": each.pid, "user": each.owner, "command": each.command} for each in armed_processes()]
    if as_json:
        print(json.dumps({"folder": str(site.folder), "armed": armed, "running": running}))
        return
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{site.folder}: armed: {armed}")
    if armed is Armed.OTHER:
        console.print("trimtab arm brings it up to date, trimtab arm --undo takes it away")
    if armed is Armed.YES and site.shared:
        console.print(
            f"this is the machine's own Python ({sys.prefix}): every process of everybody who uses it is armed"
        )
    for each in running:
        console.print(f"handles the signal: {each['pid']} ({each['user']}) {each['command']}")
