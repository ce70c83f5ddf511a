"""Everything that a lab leaves in its folder, from the cells that are done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.api.lab.cell_run import disown, is_done
from trimtab.api.lab.cells import Lab
from trimtab.api.lab.figures import DamagedError, Figures, figures, reading
from trimtab.api.lab.file import LabError
from trimtab.api.lab.perform import folder_of, ladders
from trimtab.api.lab.plots import ladder_plot, plots
from trimtab.api.lab.report import MeasuredLadder, html
from trimtab.api.lab.tables import Row, as_json, comma_separated, markdown, rows

REPORT = "report.html"
AGAIN = "the same command runs it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What there is to report."""

    table: Sequence[Row]
    damaged: Mapping[str, str]
    """What was done and can no longer be read, by name, with the file; the next start runs it again."""


def write_report(lab: Lab, out: Path, failed: Mapping[str, str]) -> Report:
    """Write tables, plots and report; `failed` says why cells are missing.

    Raises:
        LabError: the disk does not take it.
    """
    results, measured, damaged = _read(lab, out)
    report = Report(table=rows(lab, results), damaged=damaged)
    try:
        _write(lab, out, report.table, measured, {**failed, **damaged})
    except OSError as error:
        where = error.filename or out
        raise LabError(
            f"--out: {where} cannot be written ({error.strerror}); the runs are kept, and the same command writes the "
            "report once that is mended"
        ) from error
    return report


def _read(lab: Lab, out: Path) -> tuple[list[Figures], list[MeasuredLadder], dict[str, str]]:
    """The figures of the cells that are done, the ladders, and what of them is damaged."""
    results, measured, damaged = [], [], {}
    for cell in lab.cells:
        folder = folder_of(out, cell)
        if is_done(cell, folder):
            try:
                results.append(figures(cell, folder))
            except DamagedError as error:
                disown(folder)
                damaged[cell.name] = f"{error}; {AGAIN}"
    for ladder in ladders(lab, lab.cells, out):
        if ladder.path.exists():
            try:
                with reading(ladder.path):
                    rungs = json.loads(ladder.path.read_text())
                    measured.append(MeasuredLadder(title=ladder.title, rungs=rungs, plot=ladder_plot(rungs)))
            except DamagedError as error:
                ladder.path.unlink()
                damaged[ladder.name] = f"{error}; {AGAIN}"
    return results, measured, damaged


def _write(
    lab: Lab, out: Path, table: Sequence[Row], measured: Sequence[MeasuredLadder], failed: Mapping[str, str]
) -> None:
    drawn = plots(table) if table else {}
    contents: dict[str, str | bytes] = {
        "lab.toml": lab.text,
        "table.md": markdown(table, failed),
        "table.csv": comma_separated(table),
        "table.json": as_json(lab, table, failed),
        **{f"{name}.png": image for name, image in drawn.items()},
        REPORT: html(lab, table, drawn, measured, failed),
    }
    for name, content in contents.items():
        (out / name).write_bytes(content if isinstance(content, bytes) else content.encode())
