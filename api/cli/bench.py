"""`trimtab bench`."""

from __future__ import annotations

from typing import Annotated

import typer

bench = typer.Typer(no_args_is_help=True, add_completion=False, help="Measure what trimtab costs on this machine.")


@bench.callback()
def group() -> None:
    """Measure what trimtab costs on this machine."""


@bench.command()
def hook(as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False) -> None:
    """Cost of one observed step, beside `torch.quantile` per advantage sign in the same run."""
    from trimtab.api.bench.hook import bench_hook

    bench_hook(as_json=as_json)
