"""`trimtab lab` from its file to its report: finished, killed half-way, failing, and begun again."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tiny_lab import tiny_lab

from trimtab.api.lab.cell_run import MARK, is_done, train_cell
from trimtab.api.lab.cells import load_lab
from trimtab.api.lab.figures import figures
from trimtab.api.lab.file import LabError
from trimtab.api.lab.perform import claimed, folder_of
from trimtab.api.lab.tables import MEASURES
from trimtab.trainer.run import STEPS

PATIENCE = 900.0


def lab_command(path: Path, out: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "trimtab", "lab", str(path), "--out", str(out), "--jobs", "2", *options]


def lab(path: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        lab_command(path, out, *options), capture_output=True, text=True, check=False, timeout=PATIENCE
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, subprocess.CompletedProcess[str]]:
    """A lab's file, its folder, and what the command said."""
    folder = tmp_path_factory.mktemp("lab")
    path = tiny_lab(folder, '[[corrections]]\nname = "agent"\nagent = "auto"\nonly = { format = ["nvfp4"] }')
    return path, folder / "out", lab(path, folder / "out")


Done = tuple[Path, Path, subprocess.CompletedProcess[str]]


def marks(out: Path) -> dict[str, dict[str, Any]]:
    found = (json.loads(mark.read_text()) for mark in out.glob(f"cells/**/{MARK}"))
    return {mark["name"]: mark for mark in found}


@pytest.mark.slow
def test_every_cell_is_done_and_said(done: Done) -> None:
    path, out, said = done
    assert said.returncode == 0, said.stderr
    plan = load_lab(path)
    assert set(marks(out)) == {cell.name for cell in plan.cells}
    assert all(is_done(cell, folder_of(out, cell)) for cell in plan.cells)
    assert "[10/10]" in said.stderr
    assert not list(out.glob("cells/**/*.pt"))  # checkpoints are for cells that are not done


@pytest.mark.slow
def test_the_tables_say_what_the_runs_said(done: Done) -> None:
    path, out, _ = done
    plan = load_lab(path)
    content = json.loads((out / "table.json").read_text())
    assert (content["lab"], content["note"], content["failed"]) == ("tiny", plan.file.note, {})
    row = next(row for row in content["rows"] if (row["correction"], row["at"]) == ("centering", 8))
    rewards = []
    for cell in plan.chosen("nvfp4/centering@8/*"):
        steps = [json.loads(line) for line in (folder_of(out, cell) / STEPS).read_text().splitlines()]
        rewards.append(sum(step["reward_mean"] for step in steps[-20:]) / len(steps[-20:]))
        assert [step["controls"]["centering"] for step in steps] == [False] * 8 + [True] * 4
    assert row["mean"]["reward_final"] == pytest.approx(sum(rewards) / 2)
    assert [row["seeds"][str(seed)]["reward_final"] for seed in (0, 1)] == pytest.approx(rewards)
    with (out / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 5 * (2 + 2)
    assert [line["seed"] for line in lines[:4]] == ["0", "1", "mean", "sd"]
    markdown = (out / "table.md").read_text()
    assert all(measure.heading in markdown for measure in MEASURES)


@pytest.mark.slow
def test_quantiles_are_those_of_the_ledger(done: Done) -> None:
    path, out, _ = done
    (cell,) = load_lab(path).chosen("nvfp4/none/s0")
    found = figures(cell, folder_of(out, cell))
    steps = [json.loads(line) for line in (folder_of(out, cell) / STEPS).read_text().splitlines()]
    assert list(found.series.reward) == [step["reward_mean"] for step in steps]
    recorded = [value for value in found.series.mismatch_std if value is not None]
    assert len(recorded) == len(steps)
    expected = [step["mismatch_std"] for step in steps]
    assert recorded == pytest.approx(expected, rel=0.05)  # the ledger has no Bessel correction, and clamps


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.slow
def test_the_report_stands_alone_and_escapes_what_people_wrote(done: Done) -> None:
    path, out, _ = done
    seen = _Seen()
    seen.feed((out / "report.html").read_text())
    assert "lab" not in seen.tags  # the title has it in angle brackets
    assert "tiny <lab>" in seen.text
    assert "two channels are scaled & nothing else" in seen.text
    assert path.read_text() in seen.text
    assert len(seen.sources) == 3
    assert all(source.startswith("data:image/png;base64,") for source in seen.sources)
    for name in ("reward", "entropy", "ratio_quantiles"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_done_cells_are_not_run_again_unless_they_changed_or_are_asked_for(done: Done, tmp_path: Path) -> None:
    path, out, _ = done
    before = {mark: mark.stat().st_mtime_ns for mark in out.glob(f"cells/**/{MARK}")}
    again = lab(path, out)
    assert again.returncode == 0
    assert "10 cells are done already" in again.stderr
    assert {mark: mark.stat().st_mtime_ns for mark in before} == before
    fresh = lab(path, out, "--fresh", "--only", "bf16/none/s0")
    assert fresh.returncode == 0
    renewed = [mark.parent.name for mark in before if mark.stat().st_mtime_ns != before[mark]]
    assert renewed == ["s0"]
    changed = tmp_path / "tiny.toml"
    changed.write_text(path.read_text().replace("seeds = [0, 1]", "seeds = [0, 1, 2]"))
    longer = lab(changed, out, "--only", "bf16/none/*")
    assert "2 cells are done already" in longer.stderr
    assert "bf16/none/s2" in marks(out)


@pytest.mark.slow
def test_a_cell_that_fails_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tiny_lab(tmp_path)
    out = tmp_path / "out"
    folder = folder_of(out, load_lab(path).chosen("bf16/none/s0")[0])
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    said = lab(path, out, "--only", "bf16/*")
    assert said.returncode == 1
    assert "bf16/none/s0 failed: " in said.stderr
    content = json.loads((out / "table.json").read_text())
    assert list(content["failed"]) == ["bf16/none/s0"]
    assert [list(row["seeds"]) for row in content["rows"]] == [["1"]]
    assert "1 failed" in (out / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_lab_that_is_stopped_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    path, out = tiny_lab(tmp_path), tmp_path / "out"
    path.write_text(path.read_text().replace("steps = 12", "steps = 60"))
    plan = load_lab(path)
    first = folder_of(out, plan.cells[0])
    with subprocess.Popen(
        lab_command(path, out, "--only", "bf16/none/s0"), stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + PATIENCE
        while not list(first.glob("checkpoints/*.pt")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(how)
        said = process.communicate()[1]
    assert process.returncode == (130 if how is signal.SIGINT else -signal.SIGKILL)
    assert how is signal.SIGKILL or "goes on" in said
    assert not is_done(plan.cells[0], first)
    again = lab(path, out, "--only", "bf16/none/s0")
    assert again.returncode == 0, again.stderr
    rows = [json.loads(line) for line in (first / STEPS).read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(60))
    assert {row["attempt"] for row in rows} == {0, 1}  # it went on from a checkpoint
    found = figures(plan.cells[0], first)
    assert all(value is not None for value in found.series.mismatch_std)


def test_one_lab_a_folder(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(LabError, match="another lab is at work in"), claimed(tmp_path):
        pass


def test_a_cell_that_wrote_no_checkpoint_is_done(tmp_path: Path) -> None:
    path = tiny_lab(tmp_path)
    path.write_text(path.read_text().replace("checkpoint.every = 4", "checkpoint.every = 0"))
    cell = load_lab(path).cells[0]
    train_cell(cell, tmp_path / "cell")
    assert is_done(cell, tmp_path / "cell")
