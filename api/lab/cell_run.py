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

from trimtab.agent.state import Mode
from trimtab.api.lab.cells import Cell
from trimtab.api.service import Service
from trimtab.trainer.checkpoint import CheckpointError, Checkpoints
from trimtab.trainer.config import RunConfig
from trimtab.trainer.ladder import ladder
from trimtab.trainer.run import CHECKPOINTS, RESULT, execute
from trimtab.trainer.step_record import StepRecord
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
    resume = begun and any((folder / CHECKPOINTS).glob("*.pt"))
    with contextlib.suppress(CheckpointError):
        _execute(cell, folder, resume=resume)
        resume = False
    if resume:  # what its checkpoint was, this version cannot read
        _execute(cell, folder, resume=False)
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


def is_outdated(cell: Cell, folder: Path) -> bool:
    """Whether the folder holds the finished run of another configuration."""
    mark = _mark(folder)
    return mark.get("done") is True and mark.get("key") != cell.key


def disown(folder: Path) -> None:
    """Have the next start run the cell from the beginning, and leave its other files for a look until then."""
    (folder / MARK).unlink(missing_ok=True)


def clear(folder: Path) -> None:
    """Take away a cell's files."""
    shutil.rmtree(folder, ignore_errors=True)


def _execute(cell: Cell, folder: Path, *, resume: bool) -> None:
    """Run it, and tell the cell's agent what it may do at each step."""
    ledger = folder / LEDGER
    names = Checkpoints(folder / CHECKPOINTS, keep=1).names() if resume else ()
    service = Service.open(ledger)

    def tell(mode: Mode) -> None:
        service.register(cell.job, config=cell.agent, mode=mode, issuer="lab", reason=f"cell {cell.name}")

    def on_step(record: StepRecord) -> None:
        """The step's summary has been judged: what is told now holds from the next on."""
        if cell.mode_at(record.step) is not cell.mode_at(record.step + 1):
            tell(cell.mode_at(record.step + 1))

    try:
        tell(cell.mode_at(int(names[-1].partition(":")[2]) if names else 0))
        attempt = max(service.store.attempts(cell.job), default=-1) + 1
        url = f"local:{ledger}"
        execute(cell.config, url=url, job=cell.job, out=folder, attempt=attempt, resume=resume, on_step=on_step)
    finally:
        service.close()


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
