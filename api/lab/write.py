"""Everything that a lab leaves in its folder, from the cells that are done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab.api.lab.cell_run import is_done
from trimtab.api.lab.cells import Lab
from trimtab.api.lab.figures import figures
from trimtab.api.lab.perform import folder_of, ladders
from trimtab.api.lab.plots import ladder_plot, plots
from trimtab.api.lab.report import MeasuredLadder, html
from trimtab.api.lab.tables import Row, as_json, comma_separated, markdown, rows

REPORT = "report.html"


def write_report(lab: Lab, out: Path, failed: Mapping[str, str]) -> Sequence[Row]:
    """Write tables, plots and report, and return the rows; `failed` says why cells are missing."""
    results = [figures(cell, folder_of(out, cell)) for cell in lab.cells if is_done(cell, folder_of(out, cell))]
    table = rows(lab, results)
    (out / "lab.toml").write_text(lab.text)
    (out / "table.md").write_text(markdown(table))
    (out / "table.csv").write_text(comma_separated(table))
    (out / "table.json").write_text(as_json(lab, table, dict(failed)))
    measured = []
    for ladder in ladders(lab, lab.cells, out):
        if ladder.path.exists():
            rungs = json.loads(ladder.path.read_text())
            measured.append(MeasuredLadder(title=ladder.title, rungs=rungs, plot=ladder_plot(rungs)))
    drawn = plots(table) if table else {}
    for name, image in drawn.items():
        (out / f"{name}.png").write_bytes(image)
    (out / REPORT).write_text(html(lab, table, drawn, measured, failed))
    return table
