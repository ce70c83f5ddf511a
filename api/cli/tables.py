"""Tables of which nothing is cut off: a terminal folds what does not fit, and what is piped is as wide as it is."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.table import Column, Table

from trimtab.api.cli.screen import Console

PIPED_WIDTH = 1000
"""Columns of a table that is piped or written to a file, where rich would take 80; it takes what it needs of them."""


def table_of(*headings: str, whole: str = "") -> Table:
    """An empty table whose cells are folded; those under the heading `whole` never are, since they are copied."""
    columns = (Column(name, overflow="fold", no_wrap=name == whole) for name in headings)
    return Table(*columns, box=None, header_style="dim")


def as_wide_as_shown() -> Console:
    """A console for tables on standard output."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


def moment(at: float) -> str:
    """Unix seconds, as people read them."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
