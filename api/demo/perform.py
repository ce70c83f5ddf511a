"""Carry a demo out: the agent's service on loopback, the runs in processes of their own, one core each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from trimtab.api.client import Client
from trimtab.api.demo.plan import PlannedRun
from trimtab.api.errors import UserError
from trimtab.api.workers import Work, perform, steps_done
from trimtab.trainer.run import execute
from trimtab.trainer.warm_start import warm_weights

DATABASE = "agent.db"


class DemoError(UserError):
    """The demo could not be carried out; the message says which part failed and where to look."""


def clear(out: Path, runs: Sequence[PlannedRun]) -> None:
    """Make the folder and take away what an earlier demo left in it; anything else stays.

    Raises:
        DemoError: it cannot be a folder.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DemoError(f"--out: {out} cannot be the demo's folder ({error.strerror})") from error
    for suffix in ("", "-wal", "-shm"):
        (out / f"{DATABASE}{suffix}").unlink(missing_ok=True)
    for run in runs:
        shutil.rmtree(run.folder, ignore_errors=True)


@contextmanager
def service(database: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The agent's service on a free loopback port; yields its URL and process, and stops it at the end.

    Raises:
        DemoError: it does not start.
    """
    command = [sys.executable, "-m", "trimtab", "serve", "--db", str(database), "--port", "0", "--json"]
    with (
        (database.parent / "service.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                raise DemoError(f"the agent's service did not start; see {log.name}")
            yield json.loads(line)["url"], process
        finally:
            process.terminate()
            process.wait(timeout=10)


def warm_up(runs: Sequence[PlannedRun], progress: Progress) -> None:
    """Run the warm start that all runs share, unless it is cached."""
    task = progress.add_task("supervised warm start (cached for the next time)", total=None)
    warm_weights(runs[0].config, lambda done, total: progress.update(task, completed=done, total=total))
    progress.remove_task(task)


def train(runs: Sequence[PlannedRun], url: str, progress: Progress) -> None:
    """Run everything, as many at a time as there are cores.

    Raises:
        DemoError: a run failed.
    """
    with Client(url) as client:
        for run in runs:
            client.register(run.job, mode=run.run.mode, config=run.policy)
    bars = {run.job: progress.add_task(_label(run), total=run.config.steps, start=False) for run in runs}
    works = [Work(name=run.job, function=_train_one, arguments=(run, url), log=run.folder / "log.txt") for run in runs]
    ended = perform(
        works,
        os.cpu_count() or 1,
        on_start=lambda work: progress.start_task(bars[work.name]),
        on_tick=lambda: _show(runs, bars, progress),
    )
    folders = {run.job: run.folder for run in runs}
    for one in ended:
        if one.error:
            raise DemoError(f"{one.name}: {one.error} (its files are in {folders[one.name]})")


def progress_bars(*, quiet: bool) -> Progress:
    """The bars of a demo, on standard error so that standard output stays for the result."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True)


def _train_one(run: PlannedRun, url: str) -> None:
    execute(run.config, url=url, job=run.job, out=run.folder, attempt=0)


def _label(run: PlannedRun) -> str:
    return f"{run.scenario:6} {run.run.title} (seed {run.seed})"


def _show(runs: Sequence[PlannedRun], bars: dict[str, TaskID], progress: Progress) -> None:
    for run in runs:
        progress.update(bars[run.job], completed=steps_done(run.folder))
