"""The `trimtab` command. Every command is imported when it is asked for, so `trimtab serve` never loads the trainer."""

from __future__ import annotations

import gc
import importlib
from typing import Any, NoReturn

import typer
from sqlalchemy.exc import DBAPIError
from typer.core import TyperGroup

from trimtab.api.cli.errors import USER_ERRORS
from trimtab.api.cli.screen import Console

COMMANDS = {
    "demo": "trimtab.api.cli.demo",
    "train": "trimtab.api.cli.train",
    "lab": "trimtab.api.cli.lab",
    "calibrate": "trimtab.api.cli.calibrate",
    "serve": "trimtab.api.cli.serve",
    "status": "trimtab.api.cli.status",
    "jobs": "trimtab.api.cli.jobs",
    "register": "trimtab.api.cli.jobs",
    "attempts": "trimtab.api.cli.jobs",
    "settings": "trimtab.api.cli.settings",
    "incidents": "trimtab.api.cli.incidents",
    "ack": "trimtab.api.cli.incidents",
    "silence": "trimtab.api.cli.incidents",
    "unsilence": "trimtab.api.cli.incidents",
    "proposals": "trimtab.api.cli.proposals",
    "approve": "trimtab.api.cli.proposals",
    "reject": "trimtab.api.cli.proposals",
    "mode": "trimtab.api.cli.controls",
    "controls": "trimtab.api.cli.controls",
    "kill": "trimtab.api.cli.kill",
    "events": "trimtab.api.cli.events",
    "signals": "trimtab.api.cli.signals",
    "baselines": "trimtab.api.cli.baselines",
    "archive": "trimtab.api.cli.jobs",
    "token": "trimtab.api.cli.token",
    "webhook": "trimtab.api.cli.webhook",
    "audit": "trimtab.api.cli.audit",
    "sync": "trimtab.api.cli.sync",
    "tail": "trimtab.api.cli.tail",
    "arm": "trimtab.api.cli.arm",
    "attach": "trimtab.api.cli.attach",
    "detach": "trimtab.api.cli.attach",
    "replay": "trimtab.api.cli.replay",
    "backtest": "trimtab.api.cli.backtest",
    "export": "trimtab.api.cli.export",
    "backup": "trimtab.api.cli.backup",
    "restore": "trimtab.api.cli.restore",
    "bench": "trimtab.api.cli.bench",
}
"""Module of each command; it holds a function, or a `typer.Typer` group, of the command's name."""


class _Commands(TyperGroup):
    """Commands that are loaded when they are looked up."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Names, in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        gc.disable()  # as in `trimtab.__main__`
        try:
            found: Any = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        finally:
            gc.enable()
        if not isinstance(found, typer.Typer):
            single = typer.Typer(add_completion=False)
            single.command(cmd_name)(found)
            found = single
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command


app = typer.Typer(cls=_Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def trimtab() -> None:
    """Watch GRPO training in low precision, and steer it while it runs."""


def main() -> None:
    """Run the command line; a mistake of the user's ends in one line and exit status 2.

    1 is for what a command found: a ledger that does not replay, a summary that was not delivered.
    """
    try:
        app(prog_name="trimtab")
    except USER_ERRORS as error:
        _fail(str(error))
    except DBAPIError as error:
        _fail(f"db: the database cannot be used: {error.orig}")


def _fail(told: str) -> NoReturn:
    Console(stderr=True, soft_wrap=True).print(f"error: {told}", style="red", highlight=False)
    raise SystemExit(2) from None
