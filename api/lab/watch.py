"""What a person sees of a lab at work: bars on a terminal, one line for each cell elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from trimtab.api.workers import Ended, Work, steps_done


class Watch:
    """Shows it on standard error, where the result does not go.

    Args:
        total: steps of each cell, by name; other work has none.
        folder: where a cell's files are.
        console: by default standard error.
    """

    def __init__(self, total: dict[str, int], folder: Callable[[str], Path], console: Console | None = None) -> None:
        self._total = total
        self._folder = folder
        self._console = console or Console(stderr=True, soft_wrap=True, highlight=False)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._running: dict[str, TaskID] = {}
        self._stage: TaskID | None = None
        self._cells = self._done = 0

    def stage(self, what: str, *, total: int | None = None, done: int = 0) -> None:
        """Another stage of the lab begins; `done` of its work was done before."""
        if self._stage is not None:
            self._bars.remove_task(self._stage)
        self._cells, self._done = (total or 0) + done, done
        self._stage = self._bars.add_task(what, total=total and self._cells, completed=done)
        if done:
            self.say(f"{done} cells are done already")

    def say(self, what: str) -> None:
        """Something that a person should know before it happens."""
        self._console.print(what, markup=False)

    def started(self, work: Work) -> None:
        """A process begins."""
        self._running[work.name] = self._bars.add_task(f"  {work.name}", total=self._total.get(work.name))

    def tick(self) -> None:
        """Time has gone by."""
        if not self._bars.disable:
            for name, bar in self._running.items():
                if name in self._total:
                    self._bars.update(bar, completed=steps_done(self._folder(name)))

    def ended(self, ended: Ended) -> None:
        """A process has ended."""
        self._bars.remove_task(self._running.pop(ended.name))
        if ended.name in self._total:
            self._done += 1
            if self._stage is not None:
                self._bars.update(self._stage, completed=self._done)
        if ended.error:
            self._console.print(f"{ended.name} failed: {ended.error}", style="red", markup=False)
        elif self._bars.disable:
            count = f"[{self._done}/{self._cells}] " if ended.name in self._total else ""
            self._console.print(f"{count}{ended.name}: {ended.seconds:.0f} s", markup=False)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
