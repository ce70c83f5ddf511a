"""`trimtab bench tail`."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from rich.progress import Progress

from trimtab.api.cli.screen import Console
from trimtab.api.cli.tables import as_wide_as_shown, table_of


def tail(
    seconds: Annotated[float, typer.Option(min=5, help="Of each live log.")] = 45,
    rate: Annotated[float, typer.Option(min=0.1, max=1000, help="Steps that it logs a second.")] = 10,
    flush: Annotated[float, typer.Option(min=1, help="`flush_secs` of TensorBoard's writer.")] = 120,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """How late `trimtab tail` reads what W&B and TensorBoard log, and how many steps a second."""
    from trimtab.api.bench.tail import KINDS, bench_tail

    with Progress(console=Console(stderr=True), disable=as_json, transient=True) as progress:
        task = progress.add_task("logging and reading", total=2 * len(KINDS))
        figures = bench_tail(seconds, rate, flush, lambda: progress.advance(task))
    if as_json:
        print(json.dumps([dataclasses.asdict(one) for one in figures]))
        return
    headings = ("log", "steps", "lag s", "p10", "p90", "longest", "lost", "read /s", "delivered /s")
    table = table_of(*headings)
    for one in figures:
        lags = (one.lag.median, one.lag.p10, one.lag.p90, one.longest)
        rates = (f"{one.read:.0f}", f"{one.delivered:.0f}")
        table.add_row(one.kind, str(one.steps), *(f"{lag:.1f}" for lag in lags), str(one.lost), *rates)
    as_wide_as_shown().print(f"{rate:g} steps a second are logged; flush_secs of TensorBoard is {flush:g}")
    as_wide_as_shown().print(table)
