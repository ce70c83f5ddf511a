"""A bar for work that turns out to be long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SLOW_S = 2.0
"""Seconds of work after which the bar is shown."""

Item = TypeVar("Item")


class Watch(Protocol):
    """Passes items through, and counts them."""

    def __call__(self, items: Iterable[Item], /) -> Iterator[Item]:
        """The items, as they come."""


@contextmanager
def bar(
    what: str,
    total: int,
    *,
    quiet: bool = False,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Watch]:
    """A watcher of `total` items, which may come in several stretches; it draws on standard error, unless `quiet`.

    >>> with bar("folding again", total=3, quiet=True) as watch:
    ...     list(watch("ab")), list(watch("c"))
    (['a', 'b'], ['c'])
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console or Console(stderr=True), transient=True)
    task = progress.add_task(what, total=total)
    started, shown = clock(), False

    def watch(items: Iterable[Item]) -> Iterator[Item]:
        nonlocal shown
        for item in items:
            yield item
            progress.advance(task)
            if not quiet and not shown and clock() - started > SLOW_S:
                progress.start()
                shown = True

    try:
        yield watch
    finally:
        if shown:
            progress.stop()
