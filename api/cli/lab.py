"""`trimtab lab`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from trimtab.api.cli.screen import Console
from trimtab.api.lab.cells import load_lab
from trimtab.api.lab.perform import claimed, folder_of, run_cells
from trimtab.api.lab.tables import MEASURES, Row
from trimtab.api.lab.watch import Watch
from trimtab.api.lab.write import REPORT, write_report

SHOWN = ("reward_final", "reward_eval_bf16", "reward_eval_sampler", "mismatch_final", "collapsed", "recovered")
"""Columns that fit a terminal."""


def lab(
    file: Annotated[Path, typer.Argument(help="TOML file of the lab.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the results; runs/lab/NAME by default.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one a core by default.")] = None,
    only: Annotated[str, typer.Option(help="Run only the cells whose name matches, such as 'nvfp4/*/s0'.")] = "*",
    fresh: Annotated[bool, typer.Option("--fresh", help="Run cells again that are done.")] = False,
) -> None:
    """Run formats x corrections x seeds side by side, and say which is stable and what saves it."""
    plan = load_lab(file)
    out = out or Path("runs/lab") / plan.name
    cells = plan.chosen(only)
    folders = {cell.name: folder_of(out, cell) for cell in plan.cells}
    with claimed(out):
        try:
            with Watch({cell.name: cell.config.steps for cell in cells}, folders.__getitem__) as watch:
                failed = run_cells(plan, cells, out, jobs=jobs or os.cpu_count() or 1, fresh=fresh, watch=watch)
        except KeyboardInterrupt:
            Console(stderr=True, soft_wrap=True).print("stopped; the same command without --fresh goes on")
            raise typer.Exit(130) from None
        report = write_report(plan, out, failed)
    console = Console(soft_wrap=True)
    console.print(_table(report.table))
    console.print(f"\nReport: {out / REPORT}. Tables: table.md, table.csv and table.json beside it.", highlight=False)
    for name, error in report.damaged.items():
        console.print(f"{name}: {error}", style="red", highlight=False)
    names = [*failed, *report.damaged]
    if names:
        console.print(f"{len(names)} failed: {', '.join(names)}; see the report, and {out / 'logs'}", style="red")
        raise typer.Exit(1)


def _table(rows: Sequence[Row]) -> Table:
    columns = [measure for measure in MEASURES if measure.name in SHOWN]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("run")
    for measure in columns:
        table.add_column(measure.heading.replace(" ", "\n"), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(Text(row.label), *(row.told(measure).replace(" ± ", "\n±") for measure in columns))
    return table
