"""`trimtab tail`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.options import Token, Url
from trimtab.api.cli.screen import Console
from trimtab.api.client import DEFAULT_URL
from trimtab.api.log_view import OBSERVE_ONLY
from trimtab.api.tail.cursor import CursorFile
from trimtab.api.tail.frameworks import FRAMEWORKS, framework_of
from trimtab.api.tail.source import TailError
from trimtab.api.tail.sources import SOURCES, open_source
from trimtab.api.tail.tailer import Look, Tailer
from trimtab.hooks.records import RecordError, check_job
from trimtab.hooks.transport.backoff import Backoff
from trimtab.hooks.transport.base import TokenError, UrlError
from trimtab.hooks.transport.connection import Connection

CANNOT = f"{OBSERVE_ONLY}: nothing in the job can be changed, and what its logger hides is not seen"
TOLD_EVERY_S = 10.0
PATIENCE = 3
"""Tries to reach the agent with `--once`."""


def tail(
    path: Annotated[Path, typer.Argument(help="Log of the job: a file, or the folder that it lies in.")],
    job: Annotated[str, typer.Option(help="Name that the job gets at the agent.")],
    kind: Annotated[
        str | None,
        typer.Option("--as", metavar="KIND", help=f"What PATH is, where that is not seen: {', '.join(SOURCES)}."),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(help=f"Whose keys they are, where those do not tell: {', '.join(FRAMEWORKS)}."),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Of an MLflow or trackio database: which run; else the newest.")
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start/--new", help="Begin with what is logged already, or with what comes.")
    ] = True,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, deliver it, and end.")] = False,
    cursor: Annotated[
        Path | None, typer.Option(help="File that remembers how far it has read; one a job, unless said otherwise.")
    ] = None,
    poll: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between two looks.")] = 1.0,
    quiet: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds without news after which a step is complete; by the kind of log."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Watch a running job by its logs: JSON lines, trainer_state.json, TensorBoard, W&B, MLflow, trackio.

    It only observes. It goes on where it ended, whatever ended it. With --once it exits with 1 where something could
    not be delivered.
    """
    try:
        check_job(job)
        agent = Connection(url, token)
    except (RecordError, UrlError, TokenError) as error:
        raise UsageError(str(error)) from error
    name = "" if framework is None else framework_of(framework).name
    path = path.absolute()
    source = open_source(path, kind, run)
    store = CursorFile(_cursor_of(job) if cursor is None else cursor)
    try:
        tailer = Tailer(
            source,
            path=str(path),
            job=job,
            store=store,
            agent=agent,
            framework=name,
            from_start=from_start,
            quiet_s=quiet,
        )
        told = Telling(tailer, url)
        told.begin(source.kind, path)
        if once:
            _once(tailer, told)
        else:
            _forever(tailer, told, poll)
    except KeyboardInterrupt:
        pass
    finally:
        store.close()
        agent.hang_up()


def _cursor_of(job: str) -> Path:
    base = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return base / "trimtab" / "tail" / f"{job}.json"


def _once(tailer: Tailer, told: Telling) -> None:
    failures = 0
    while True:
        look = tailer.look(last=True)
        told.seen(look)
        if look.away:
            failures += 1
            if failures == PATIENCE:
                break
            time.sleep(Backoff().wait(failures))
        elif not look.more:
            break
    told.end()
    if failures == PATIENCE or tailer.cursor.counts.refused:
        raise typer.Exit(1)


def _forever(tailer: Tailer, told: Telling, poll: float) -> None:
    backoff, failures = Backoff(), 0
    while True:
        try:
            look = tailer.look()
        except TailError as error:
            told.trouble(str(error))
            time.sleep(poll)
            continue
        told.seen(look)
        failures = failures + 1 if look.away else 0
        if failures:
            time.sleep(max(poll, backoff.wait(failures)))
        elif not look.more:
            time.sleep(poll)


class Telling:
    """What the person at the terminal is told."""

    def __init__(self, tailer: Tailer, url: str) -> None:
        self._tailer, self._url = tailer, url
        self._console = Console(soft_wrap=True, highlight=False)
        self._trouble = ""
        self._told_at = 0.0
        self._told_steps = tailer.cursor.steps

    def begin(self, kind: str, path: Path) -> None:
        """Before the first look."""
        cursor = self._tailer.cursor
        self._console.print(f"job {cursor.job}: {kind} {path} -> {self._url}")
        self._console.print(CANNOT)
        if cursor.steps:
            self._console.print(f"goes on behind {cursor.steps} steps, attempt {cursor.assembly.attempt}")

    def seen(self, look: Look) -> None:
        """After a look: trouble once, and how it goes now and then."""
        if look.refusal:
            self._console.print(f"refused for good: {look.refusal}", style="yellow")
        if look.away:
            self.trouble(f"{look.away}: {len(self._tailer.cursor.outbox)} steps wait, and the log keeps the rest")
            return
        self._trouble = ""
        now = time.monotonic()
        if self._tailer.cursor.steps != self._told_steps and now - self._told_at >= TOLD_EVERY_S:
            self._told_at = now
            self.tell()

    def trouble(self, what: str) -> None:
        """Something that is tried again; once while it lasts."""
        if what != self._trouble:
            self._trouble = what
            self._console.print(what, style="yellow")

    def end(self) -> None:
        """After the last look."""
        if self._told_steps != self._tailer.cursor.steps or not self._told_at:
            self.tell()

    def tell(self) -> None:
        """How far it is."""
        cursor = self._tailer.cursor
        self._told_steps = cursor.steps
        assembly, counts = cursor.assembly, cursor.counts
        behind = self._tailer.lag_s
        lag = "the log does not say when" if behind is None else f"read {behind:.1f} s after it was logged"
        left_out = {
            "damaged records": counts.damaged,
            "files cut or gone, of which a rest may be lost": counts.cut_off,
            "values without a step": assembly.stepless,
            "shares outside [0, 1]": counts.impossible,
            "values too many": counts.too_many,
            "steps refused": counts.refused,
        }
        told = ", ".join(f"{n} {what}" for what, n in left_out.items() if n)
        late = f"; {assembly.late} values came late, and stand at the step behind theirs" if assembly.late else ""
        newest = f"step {assembly.closed}" if assembly.closed >= 0 else "no step yet"
        self._console.print(
            f"{cursor.steps} steps ({assembly.rows} rows), {newest} of attempt {assembly.attempt}, "
            f"{self._tailer.framework}, {lag}{f'; left out: {told}' if told else ''}{late}"
        )
        if cursor.presence.gone:
            self._console.print(f"vanished: {', '.join(cursor.presence.gone)}", style="yellow")
