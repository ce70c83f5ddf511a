"""`trimtab demo`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from trimtab.api.cli.screen import Console
from trimtab.api.client import Client
from trimtab.api.demo.outcome import outcomes
from trimtab.api.demo.perform import DATABASE, clear, progress_bars, service, train, warm_up
from trimtab.api.demo.picture import draw
from trimtab.api.demo.plan import plan
from trimtab.api.demo.report import report, write_summary

SUMMARY = "summary.json"
PICTURE = "demo.png"


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="Repeat with seeds 0 to N-1 and show mean and spread.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Only the reference, the collapse and the rescue.")] = False,
    keep_serving: Annotated[bool, typer.Option("--serve", help="Leave the dashboard up at the end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("runs/demo"),
) -> None:
    """Watch real GRPO runs collapse in NVFP4, and the agent save them live."""
    started = time.monotonic()
    runs = plan(out, seeds=seeds, quick=quick)
    clear(out, runs)
    console = Console()
    with service(out / DATABASE) as (url, process):
        with progress_bars(quiet=as_json) as progress:
            if not as_json:
                progress.console.print(f"the agent watches at [bold]{url}[/bold]: open it to see the runs live")
            warm_up(runs, progress)
            train(runs, url, progress)
        with Client(url) as client:
            results = outcomes(runs, client)
        summary = write_summary(out / SUMMARY, results)
        draw(out / PICTURE, results)
        if as_json:
            print(json.dumps(summary, indent=2))
        else:
            console.print(report(results))
            console.print(
                f"\n{time.monotonic() - started:.0f} s. Picture: {out / PICTURE}. Figures: {out / SUMMARY}.\n"
                f"Every decision again, from the ledger: trimtab replay {out / DATABASE}",
                soft_wrap=True,
                highlight=False,
            )
        if keep_serving:
            console.print(f"the dashboard stays at [bold]{url}[/bold] until Ctrl-C", markup=True, soft_wrap=True)
            try:
                process.wait()
            except KeyboardInterrupt:
                console.print("stopped")
