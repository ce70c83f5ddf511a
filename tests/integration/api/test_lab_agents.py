"""Agents in a lab's cells: on duty from a step on, and able to go back to a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from tiny_lab import tiny_lab

from trimtab.agent.state import EventKind, OperatorAction, OperatorVerb
from trimtab.api.lab.cell_run import LEDGER, train_cell
from trimtab.api.lab.cells import Cell, load_lab
from trimtab.api.lab.figures import figures
from trimtab.api.service import Service
from trimtab.storage.database import Database
from trimtab.storage.store import Store
from trimtab.storage.values import EntryKind
from trimtab.trainer.run import STEPS, execute
from trimtab.trainer.step_record import StepRecord

AGENT = '[[corrections]]\nname = "agent"\nagent = "auto"\nat = [0, 6]\nonly = { format = ["nvfp4"] }'


def late(folder: Path) -> Cell:
    (cell,) = load_lab(tiny_lab(folder, AGENT)).chosen("nvfp4/agent@6/s0")
    return cell


def ledger(cell: Cell, folder: Path) -> tuple[list[tuple[int | None, int | None]], list[tuple[int, str]]]:
    """Attempt and step of each summary, and step and mode of each change of mode."""
    store = Store(Database(folder / LEDGER, read_only=True))
    entries = [one for one in store.recorded(cell.job).entries if one.kind is EntryKind.SUMMARY]
    events = store.events(cell.job, kinds=[EventKind.MODE_CHANGED])
    store.database.close()
    return [(one.attempt, one.step) for one in entries], [(one.step, one.detail["after"]) for one in events]


def test_until_its_step_the_agent_observes(tmp_path: Path) -> None:
    cell, folder = late(tmp_path), tmp_path / "cell"
    train_cell(cell, folder)
    summaries, changes = ledger(cell, folder)
    assert summaries == [(0, step) for step in range(12)]
    assert changes == [(5, "auto")]  # behind the last step that is judged under the old mode


def test_a_restore_within_a_cell_leaves_both_attempts_and_the_newest_is_read(tmp_path: Path) -> None:
    cell, folder = late(tmp_path), tmp_path / "cell"
    train_cell(cell, folder)
    service = Service.open(folder / LEDGER)

    def back(record: StepRecord) -> None:
        if (record.attempt, record.step) == (1, 8):
            verb, overrides = OperatorVerb.PATCH_CONTROLS, {"restore": "1:4", "clip_low": 0.25}
            action = OperatorAction(job=cell.job, verb=verb, issuer="me", reason="it fell", overrides=overrides)
            service.operate(action)

    execute(cell.config, url=f"local:{folder / LEDGER}", job=cell.job, out=folder, attempt=1, on_step=back)
    service.close()
    summaries, _ = ledger(cell, folder)
    assert summaries[12:] == [(1, step) for step in range(10)] + [(2, step) for step in range(4, 12)]
    rows = [json.loads(line) for line in (folder / STEPS).read_text().splitlines()]
    newest = {row["step"]: row["reward_mean"] for row in rows}
    found = figures(cell, folder)
    assert list(found.series.reward) == [newest[step] for step in range(12)]
    assert {row["step"] for row in rows if row["attempt"] == 2} == set(range(4, 12))
    assert all(value is not None for value in found.series.mismatch_std)
