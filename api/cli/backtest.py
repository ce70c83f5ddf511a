"""`trimtab backtest`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import to_json
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trimtab.agent.config import AgentConfig, with_settings
from trimtab.api.backtest.conditions import SMALL, Size
from trimtab.api.backtest.drawing import judged, parts
from trimtab.api.backtest.labels import labelled
from trimtab.api.backtest.recorded import RecordedScores, scored_run, scored_runs
from trimtab.api.backtest.scenarios import SCENARIOS
from trimtab.api.backtest.scores import Scores, scored
from trimtab.api.backtest.tables import drawn_table, recorded_table
from trimtab.api.backtest.trials import Plan
from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.progress import Lines
from trimtab.api.cli.screen import Console
from trimtab.api.settings_file import settings_in


def backtest(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder of recorded runs, with their labels.toml.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of the agent's settings; the defaults without one.")
    ] = None,
    synthetic: Annotated[bool, typer.Option("--synthetic", help="Score on runs that are drawn instead.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Drawn runs of each scenario and onset.")] = 10,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a drawn run that does not fail.")] = 1000,
    onsets: Annotated[str, typer.Option(help="Steps at which drawn runs begin to fail.")] = "200,500,2000",
    horizon: Annotated[int, typer.Option(min=1, help="Steps within which a drawn failure has to be seen.")] = 300,
    only: Annotated[str, typer.Option(help="Draw only scenarios whose name matches, such as 'tail*'.")] = "*",
    small: Annotated[bool, typer.Option("--small", help="Draw an eighth of the tokens.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes at a time; one a core by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score the detectors on runs that are known to fail or not: how late they alert, and how often falsely."""
    settings = settings_in(config)
    if (folder is None) is not synthetic:
        raise UsageError("DIR: give a folder of labelled runs, or --synthetic for drawn ones, and not both")
    scores: RecordedScores | Scores
    table: RenderableType
    if folder is not None:
        scores = _recorded(folder, settings, quiet=as_json)
        table = recorded_table(scores)
    else:
        plan = Plan(seeds=seeds, steps=steps, onsets=_onsets(onsets), horizon=horizon, size=SMALL if small else Size())
        scores = _drawn(plan, only, settings, jobs or os.cpu_count() or 1, quiet=as_json)
        table = drawn_table(scores)
    if as_json:
        found = {field.name: getattr(scores, field.name) for field in fields(scores)}
        print(to_json({"settings": settings, **found}, inf_nan_mode="strings").decode())
    else:
        Console().print(table)


def _recorded(folder: Path, settings: dict[str, Any], *, quiet: bool) -> RecordedScores:
    runs = labelled(folder)
    with _bar("judging runs", len(runs), quiet=quiet) as advance:
        found = []
        for run in runs:
            found.append(scored_run(folder, run, settings))
            advance()
    return scored_runs(found)


def _drawn(plan: Plan, only: str, settings: dict[str, Any], jobs: int, *, quiet: bool) -> Scores:
    chosen = [name for name in SCENARIOS if fnmatchcase(name, only)]
    if not chosen:
        raise UsageError(f"--only: {only!r} matches no scenario; there are {', '.join(SCENARIOS)}")
    config = with_settings(AgentConfig(), settings)
    try:
        with _bar("judging drawn runs", parts(plan, chosen), quiet=quiet) as advance:
            return scored(judged(plan, chosen, config, jobs=jobs, on_end=advance))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _onsets(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--onsets: {text!r} is not a list of steps, such as 200,500,2000") from None


@contextmanager
def _bar(what: str, total: int, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """Call what it gives after each part: a bar on a terminal, lines elsewhere, both on standard error."""
    console = Console(stderr=True)
    in_log = not quiet and not console.is_terminal
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    lines, done = Lines(console), 0
    with Progress(*columns, console=console, disable=quiet or in_log, transient=True) as progress:
        task = progress.add_task(what, total=total)

        def advance() -> None:
            nonlocal done
            done += 1
            progress.advance(task)
            if in_log:
                lines.tell(f"{what}: {done} of {total}", last=done == total)

        yield advance
