"""What the processes of a lab do: a warm start, a cell's run, a precision ladder. Each leaves files behind."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from trimtab.api.lab.cells import Cell
from trimtab.api.service import Service
from trimtab.trainer.checkpoint import CheckpointError
from trimtab.trainer.config import RunConfig
from trimtab.trainer.ladder import ladder
from trimtab.trainer.run import CHECKPOINTS, RESULT, execute
from trimtab.trainer.warm_start import warm_weights

MARK = "cell.json"
"""Whose folder it is, and whether its run is done."""
LEDGER = "ledger.db"
LOG = "log.txt"


def warm_start(config: RunConfig) -> None:
    """Put the warm start in the cache, unless it is there."""
    warm_weights(config)


def train_cell(cell: Cell, folder: Path) -> None:
    """Run the cell, from its checkpoint where a start of the same cell left one."""
    started = time.monotonic()
    begun = _mark(folder).get("key") == cell.key
    if not begun:
        clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _set_mark(folder, cell, done=False)
    attempt = _attach(cell, folder / LEDGER)
    resume = begun and any((folder / CHECKPOINTS).glob("*.pt"))
    with contextlib.suppress(CheckpointError):
        _execute(cell, folder, attempt, resume=resume)
        resume = False
    if resume:  # what its checkpoint was, this version cannot read
        _execute(cell, folder, attempt, resume=False)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)  # some hundred cells would fill a disk with them
    _set_mark(folder, cell, done=True, seconds=time.monotonic() - started)


def precision_ladder(config: RunConfig, path: Path) -> None:
    """Measure the ladder of the run's start and write it to `path`."""
    rungs = [dataclasses.asdict(rung) for rung in ladder(config)]
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, rungs)


def is_done(cell: Cell, folder: Path) -> bool:
    """Whether the folder holds the cell's finished run."""
    mark = _mark(folder)
    return mark.get("key") == cell.key and mark.get("done") is True and (folder / RESULT).exists()


def clear(folder: Path) -> None:
    """Take away a cell's files."""
    shutil.rmtree(folder, ignore_errors=True)


def _execute(cell: Cell, folder: Path, attempt: int, *, resume: bool) -> None:
    execute(cell.config, url=f"local:{folder / LEDGER}", job=cell.job, out=folder, attempt=attempt, resume=resume)


def _attach(cell: Cell, ledger: Path) -> int:
    """Tell the cell's agent what it may do; returns the number of the attempt that is about to begin."""
    service = Service.open(ledger)
    try:
        service.register(cell.job, config=cell.agent, mode=cell.mode, issuer="lab", reason=f"cell {cell.name}")
        return max(service.store.attempts(cell.job), default=-1) + 1
    finally:
        service.store.close()


def _mark(folder: Path) -> dict[str, Any]:
    try:
        mark = json.loads((folder / MARK).read_text())
    except (OSError, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def _set_mark(folder: Path, cell: Cell, *, done: bool, seconds: float | None = None) -> None:
    _write(folder / MARK, {"name": cell.name, "key": cell.key, "done": done, "seconds": seconds})


def _write(path: Path, content: Any) -> None:
    """Whole or not at all: a lab may be killed at any moment."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(content, indent=2))
    partial.replace(path)
