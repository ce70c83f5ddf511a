"""Carry a lab out: warm starts, ladders and cells, in parallel, from where an earlier start left off."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trimtab.api.lab.cell_run import LOG, clear, is_done, is_outdated, precision_ladder, train_cell, warm_start
from trimtab.api.lab.cells import Cell, Lab
from trimtab.api.lab.file import LabError
from trimtab.api.lab.watch import Watch
from trimtab.api.workers import Work, perform
from trimtab.trainer.config import RunConfig
from trimtab.trainer.sections import DecoderConfig

CELLS = "cells"
LADDERS = "ladders"
LOGS = "logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The precision ladder of one start."""

    title: str
    """Groups that start there."""
    config: RunConfig
    path: Path

    @property
    def name(self) -> str:
        """What its work is called."""
        return f"precision ladder {self.title}".rstrip()


def folder_of(out: Path, cell: Cell) -> Path:
    """Where a cell's files are."""
    return out / CELLS / cell.name


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Have a lab's folder to oneself.

    Raises:
        LabError: it cannot be a folder, or another lab is at work in it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / "lock").open("w")
    except OSError as error:
        raise LabError(f"--out: {out} cannot be the lab's folder ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LabError(f"--out: another lab is at work in {out}; wait for it, or give another folder") from None
        yield


def run_cells(lab: Lab, cells: Sequence[Cell], out: Path, *, jobs: int, fresh: bool, watch: Watch) -> dict[str, str]:
    """Run what is not done yet; returns the error of every cell that failed, by name.

    Args:
        lab: the lab.
        cells: those of its cells that are wanted.
        out: its folder.
        jobs: processes at a time.
        fresh: run cells that are done too, and from the start.
        watch: sees what goes on.
    """
    if fresh:
        for cell in cells:
            clear(folder_of(out, cell))
        for ladder in ladders(lab, cells, out):
            ladder.path.unlink(missing_ok=True)
    left = [cell for cell in cells if not is_done(cell, folder_of(out, cell))]
    outdated = sum(is_outdated(cell, folder_of(out, cell)) for cell in left)
    if outdated:
        told = "cell has another configuration and is" if outdated == 1 else "cells have another configuration and are"
        watch.say(f"{outdated} done {told} run again")
    # Cells that share a warm start would each train it, side by side.
    watch.stage("warm starts")
    perform(_warm_starts(left, out), jobs, on_start=watch.started, on_end=watch.ended, on_tick=watch.tick)
    watch.stage("cells", total=len(left), done=len(cells) - len(left))
    works = [
        Work(
            name=cell.name,
            function=train_cell,
            arguments=(cell, folder_of(out, cell)),
            log=out / LOGS / f"{cell.job}.txt",
        )
        for cell in left
    ]
    works += [
        Work(
            name=one.name,
            function=precision_ladder,
            arguments=(one.config, one.path),
            log=out / LOGS / LOG,
        )
        for one in ladders(lab, cells, out)
        if not one.path.exists()
    ]
    ended = perform(works, jobs, on_start=watch.started, on_end=watch.ended, on_tick=watch.tick)
    return {one.name: one.error for one in ended if one.error}


def ladders(lab: Lab, cells: Sequence[Cell], out: Path) -> list[Ladder]:
    """One for each start that cells have in common: model, task, warm start and outliers."""
    if not lab.file.ladder:
        return []
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        start = cell.config.model_dump_json(include={"model", "task", "warm_start", "outliers"})
        found.setdefault(hashlib.sha256(start.encode()).hexdigest()[:16], []).append(cell)
    return [
        Ladder(title=_shared(members), config=members[0].config, path=out / LADDERS / f"ladder-{digest}.json")
        for digest, members in found.items()
    ]


def _shared(cells: Sequence[Cell]) -> str:
    """What cells have in common, by axis; empty where they have nothing but the lab."""
    parts = []
    for axis in cells[0].variants:
        values = dict.fromkeys(cell.variants[axis] for cell in cells)
        if axis != "correction" and len(values) <= 2:
            parts.append(" and ".join(values))
    return ", ".join(parts)


def _warm_starts(cells: Sequence[Cell], out: Path) -> list[Work]:
    sizes = {"width", "layers", "heads", "hidden"}
    starts = {
        cell.config.model_dump_json(include={"task": True, "warm_start": True, "model": sizes}): cell.config
        for cell in cells
        if isinstance(cell.config.model, DecoderConfig)
    }
    return [
        Work(name=f"warm start {index}", function=warm_start, arguments=(config,), log=out / LOGS / LOG)
        for index, config in enumerate(starts.values())
    ]
