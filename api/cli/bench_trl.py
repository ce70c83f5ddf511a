"""`trimtab bench rescue` and `trimtab bench trl-hook`."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from trimtab.api.cli.screen import Console
from trimtab.api.cli.tables import as_wide_as_shown, table_of

AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]


def rescue(
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each kind.")] = 3,
    generations: Annotated[int, typer.Option(min=20, help="Of each run, with 8 optimizer steps each.")] = 60,
    out: Annotated[Path | None, typer.Option(help="Folder to keep the runs and the agent's database in.")] = None,
    as_json: AsJson = False,
) -> None:
    """A TRL run that fails by itself, alone and with the agent in mode auto."""
    from trimtab.api.bench.rescue import KINDS, bench_rescue

    with (
        tempfile.TemporaryDirectory() as folder,
        Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress,
    ):
        task = progress.add_task("runs", total=seeds * len(KINDS))
        done = bench_rescue(range(seeds), generations, out or Path(folder), lambda: progress.advance(task))
    if as_json:
        print(json.dumps([dataclasses.asdict(one) for one in done]))
        return
    table = table_of("seed", "healthy", "alone", "attended", "of healthy", "remedies, by optimizer step")
    for one in done:
        rewards = (f"{reward:.3f}" for reward in (one.healthy, one.alone, one.attended))
        table.add_row(str(one.seed), *rewards, f"{one.kept:.2f}", ", ".join(one.remedies))
    as_wide_as_shown().print(table)


def trl_hook(
    generations: Annotated[int, typer.Option(min=5, help="Pairs, of 8 optimizer steps each.")] = 40,
    as_json: AsJson = False,
) -> None:
    """What the attached adapter costs a TRL run: two trainers take turns, one with it and one without."""
    from trimtab.api.bench.trl_hook import bench_trl_hook

    with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
        task = progress.add_task("pairs", total=None)
        cost = bench_trl_hook(generations, lambda: progress.advance(task))
    if as_json:
        print(json.dumps(dataclasses.asdict(cost)))
        return
    table = table_of("of one optimizer step", "median", "p10", "p90")
    for name, spread, form in (
        ("without it, ms", cost.step_ms, "{:.2f}"),
        ("added by the clock, ms", cost.added_ms, "{:+.2f}"),
        ("added to the thread that trains, ms", cost.worked_ms, "{:+.2f}"),
        ("share of its work", cost.share, "{:+.1%}"),
    ):
        table.add_row(name, *(form.format(value) for value in (spread.median, spread.p10, spread.p90)))
    as_wide_as_shown().print(table)
