"""A bar for work that turns out to be long, and lines where nobody would see one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trimtab.api.cli.screen import Console

SLOW_S = 2.0
"""Seconds of work after which the bar is shown."""

LINE_EVERY_S = 10.0
"""Seconds between two lines."""

Item = TypeVar("Item")


class Watch(Protocol):
    """Passes items through, and counts them."""

    def __call__(self, items: Iterable[Item], /) -> Iterator[Item]:
        """The items, as they come."""


class Lines:
    """Progress in a log: the first line, the last, and one every ten seconds between.

    >>> Lines(Console()).tell("step 1 of 3")
    step 1 of 3
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._due = -math.inf

    def tell(self, line: str, *, last: bool = False) -> None:
        """Print `line` where one is due, or it is the last."""
        now = self._clock()
        if last or now >= self._due:
            self._console.print(line, highlight=False, soft_wrap=True)
            self._due = now + LINE_EVERY_S


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
