"""Every lab that is shipped can be run: its file is read, and each of its cells is checked against its model."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.agent.state import Mode
from trimtab.api.lab.cells import load_lab

LABS = sorted((Path(__file__).resolve().parents[2] / "configs" / "lab").glob("*.toml"))


def test_labs_are_found() -> None:
    assert {"cliff", "switch", "fp8-updates", "fp8-stale", "reinforce-edge", "backward"} <= {lab.stem for lab in LABS}


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_every_cell_can_run(path: Path) -> None:
    lab = load_lab(path)
    assert len(lab.cells) >= 3
    assert lab.file.title
    assert lab.file.note
    assert f"trimtab lab configs/lab/{path.name}" in lab.text


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_an_agent_has_checkpoints_of_the_last_50_steps_to_go_back_to(path: Path) -> None:
    kept = {
        (cell.config.checkpoint.every, cell.config.checkpoint.keep)
        for cell in load_lab(path).cells
        if cell.mode is Mode.AUTO
    }
    assert kept in ({(5, 10)}, set())


@pytest.mark.parametrize("name", ["cliff", "switch"])
def test_every_remedy_is_tried_in_time_late_and_too_late(name: str) -> None:
    path = next(lab for lab in LABS if lab.stem == name)
    steps = {correction.name: correction.steps for correction in load_lab(path).file.corrections}
    for remedy in ("recomputed-centering", "reinforce-centering", "recomputed-tis", "recomputed-mis", "calibrated"):
        assert steps[remedy] == (8, 25, 40)
