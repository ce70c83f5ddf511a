"""A lab's report where a finished cell is damaged, where cells are outdated, and where the disk is full."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from tiny_lab import tiny_lab
from typer.testing import CliRunner

from trimtab.api.cli import app
from trimtab.api.lab.cell_run import LEDGER, MARK, is_done, is_outdated, train_cell
from trimtab.api.lab.cells import Lab, load_lab
from trimtab.api.lab.figures import DamagedError, figures
from trimtab.api.lab.file import LabError
from trimtab.api.lab.perform import folder_of, ladders, run_cells
from trimtab.api.lab.watch import Watch
from trimtab.api.lab.write import write_report
from trimtab.trainer.run import RESULT, STEPS


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a lab of which two cells are done."""
    out = tmp_path_factory.mktemp("finished")
    for cell in lab_in(out).cells[:2]:
        train_cell(cell, folder_of(out, cell))
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


def lab_in(folder: Path) -> Lab:
    return load_lab(tiny_lab(folder))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 3])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garble(path: Path) -> None:
    path.write_bytes(b"\xff{" * 4000)


@pytest.mark.parametrize("damage", [cut, empty, garble, Path.unlink])
@pytest.mark.parametrize("name", [STEPS, RESULT, LEDGER])
def test_a_damaged_file_is_named(out: Path, name: str, damage: Callable[[Path], None]) -> None:
    cell = lab_in(out).cells[0]
    path = folder_of(out, cell) / name
    damage(path)
    with pytest.raises(DamagedError) as caught:
        figures(cell, folder_of(out, cell))
    assert str(caught.value).startswith(f"{path} cannot be read (")
    assert "\n" not in str(caught.value)


def test_a_damaged_cell_is_told_and_run_again_and_the_rest_is_reported(out: Path) -> None:
    lab = lab_in(out)
    damaged, whole = lab.cells[:2]
    path = folder_of(out, damaged) / LEDGER
    garble(path)
    report = write_report(lab, out, {"nvfp4/none/s0": "ValueError: no such luck"})
    assert list(report.damaged) == [damaged.name]
    told = report.damaged[damaged.name]
    assert str(path) in told
    assert told.endswith("; the same command runs it again")
    assert [[member.cell.name for member in row.members] for row in report.table] == [[whole.name]]
    failed = json.loads((out / "table.json").read_text())["failed"]
    assert failed == {"nvfp4/none/s0": "ValueError: no such luck", damaged.name: told}
    lines = (out / "table.md").read_text().splitlines()
    assert "2 failed, and are missing above:" in lines
    assert f"- {damaged.name}: {told}" in lines
    assert "2 failed" in (out / "report.html").read_text()
    assert not is_done(damaged, folder_of(out, damaged))
    assert is_done(whole, folder_of(out, whole))
    train_cell(damaged, folder_of(out, damaged))
    assert write_report(lab, out, {}).damaged == {}


def test_a_damaged_ladder_does_not_stand_in_the_way(tmp_path: Path) -> None:
    path = tiny_lab(tmp_path)
    path.write_text(path.read_text().replace("ladder = false", "ladder = true"))
    lab = load_lab(path)
    (ladder, *_) = ladders(lab, lab.cells, tmp_path)
    ladder.path.parent.mkdir()
    ladder.path.write_text('[{"format": "bf1')
    (told,) = write_report(lab, tmp_path, {}).damaged.values()
    assert str(ladder.path) in told
    assert not ladder.path.exists()


def test_done_cells_of_another_configuration_are_told_before_they_are_run_again(out: Path) -> None:
    cell = lab_in(out).cells[0]
    folder = folder_of(out, cell)
    assert not is_outdated(cell, folder)
    mark = json.loads((folder / MARK).read_text())
    (folder / MARK).write_text(json.dumps(mark | {"key": "another"}))
    lab, said = lab_in(out), io.StringIO()
    with Watch({}, Path, Console(file=said, soft_wrap=True)) as watch:
        assert run_cells(lab, lab.cells[:2], out, jobs=1, fresh=False, watch=watch) == {}
    first, *rest = said.getvalue().splitlines()
    assert first == "1 done cell has another configuration and is run again"
    assert "1 cells are done already" in rest
    assert is_done(cell, folder)


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "table.csv").symlink_to("/dev/full")
    with pytest.raises(LabError, match=r"^--out: .* cannot be written \(No space left on device\); the runs are kept"):
        write_report(lab_in(tmp_path), tmp_path, {})


def test_the_command_names_what_is_damaged_and_ends_with_1(out: Path) -> None:
    lab = lab_in(out)
    path = folder_of(out, lab.cells[0]) / STEPS
    cut(path)
    command = ["lab", str(out / "tiny.toml"), "--out", str(out), "--only", lab.cells[1].name]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 1
    assert f"{lab.cells[0].name}: {path} cannot be read (JSONDecodeError: " in done.stdout
    assert f"1 failed: {lab.cells[0].name}; see the report" in done.stdout
