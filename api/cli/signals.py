"""`trimtab signals`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.options import AsJson, Job, Token, Url
from trimtab.api.cli.tables import as_wide_as_shown, table_of
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.api.log_view import as_bound
from trimtab.api.routes.signals import MAX_POINTS, Series, Signals


def signals(
    job: Job,
    names: Annotated[
        list[str] | None, typer.Argument(help="Signals to show step by step; a line about each without.")
    ] = None,
    attempt: Annotated[int | None, typer.Option(min=0, help="Of this attempt, not of the newest.")] = None,
    points: Annotated[
        int, typer.Option(min=5, max=MAX_POINTS, help="At most so many steps of each; extremes stay.")
    ] = 500,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show what was measured in a job, over its steps."""
    with Client(url, token) as client:
        found = client.signals(job, names or None, attempt=attempt, points=points)
    if unknown := [name for name in names or () if name not in found.names]:
        raise UsageError(f"names: {job} has no signal {unknown[0]!r}; `trimtab signals {job}` lists those that it has")
    if as_json:
        print(found.model_dump_json())
    elif names:
        _show_steps(found)
    else:
        _show_lines(found)


def _show_lines(found: Signals) -> None:
    """Of each signal the newest value and the extremes of those that are finite."""
    table = table_of("signal", "steps", "newest", "lowest", "highest")
    for one in found.series:
        if one.steps:
            finite = _finite(one)
            extremes = (f"{min(finite):.4g}", f"{max(finite):.4g}") if finite else ("-", "-")
            table.add_row(*map(Text, (one.name, f"{one.steps[0]} to {one.steps[-1]}", _values(one)[-1], *extremes)))
    as_wide_as_shown().print(table if table.row_count else "nothing was observed yet", highlight=False)


def _show_steps(found: Signals) -> None:
    table = table_of("step", *(one.name for one in found.series))
    columns = [dict(zip(one.steps, _values(one), strict=True)) for one in found.series]
    for step in sorted({step for column in columns for step in column}):
        table.add_row(*map(Text, (str(step), *(column.get(step, "") for column in columns))))
    as_wide_as_shown().print(table if table.row_count else "not observed in this attempt", highlight=False)


def _values(series: Series) -> list[str]:
    """As they are written; what is not finite by its name, and what is censored as the bound that it is."""
    written = [
        f"{value:.6g}" if series.censored is None else as_bound(value, series.censored) for value in _finite(series)
    ]
    finite = iter(written)
    return [kind if value is None else next(finite) for value, kind in zip(series.values, series.kinds, strict=True)]


def _finite(series: Series) -> list[float]:
    return [value for value in series.values if value is not None]
