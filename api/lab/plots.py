"""A lab's plots: one panel a group, the mean over the seeds with a band of one standard deviation."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from trimtab.api.lab.figures import SMOOTHING, Figures, smoothed
from trimtab.api.lab.tables import Row

COLUMNS = 4
NEGATIVE, POSITIVE, TWIN, UNTREATED = "#dc2626", "#2563eb", "#6b7280", "#9ca3af"
PALETTE = ("#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
"""Of the steps at which one correction begins."""
UNTREATED_NAME = "none"
"""The correction that every panel of its format shows in grey."""


def plots(table: Sequence[Row]) -> dict[str, bytes]:
    """Every plot as PNG, by name."""
    return {
        "reward": _drawn(_curves(table, "reward", f"reward ({SMOOTHING}-step mean)", (0.0, 1.02))),
        "entropy": _drawn(_curves(table, "entropy", "entropy, nats a token", None)),
        "ratio_quantiles": _drawn(_quantiles(table)),
    }


def ladder_plot(rungs: Sequence[dict[str, Any]]) -> bytes:
    """The precision ladder as bars, PNG."""
    names = [rung["format"] for rung in rungs]
    figure = Figure(figsize=(7.2, 0.6 + 0.28 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    values = [max(rung["std"], 1e-6) for rung in rungs]
    bars = panel.barh(range(len(names)), values, color="#2563eb", height=0.65)
    panel.bar_label(bars, [f"{rung['std']:.4f}" for rung in rungs], padding=3, fontsize=8)
    panel.set_yticks(range(len(names)), names, fontsize=8)
    panel.invert_yaxis()
    panel.set_xscale("log")
    panel.set_xlim(min(values) / 2, max(values) * 3)
    panel.set_xlabel("standard deviation of log p(BF16) - log p(sampler), nats", fontsize=8)
    panel.tick_params(axis="x", labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    return _drawn(figure)


def _curves(table: Sequence[Row], name: str, axis: str, limits: tuple[float, float] | None) -> Figure:
    """One panel for each correction of each format; a line for each step at which it begins."""
    panels: dict[str, list[Row]] = {}
    for row in table:
        panels.setdefault("/".join(row.variants.values()), []).append(row)
    figure, grid = _grid(len(panels))
    for panel, members in zip(grid, panels.values(), strict=False):
        untreated = next((row for row in table if _is_untreated(row, members[0])), None)
        if untreated is not None and untreated not in members:
            _band(panel, _values(untreated.members, name), UNTREATED, "untreated", dashed=True)
        for row, colour in zip(members, PALETTE, strict=False):
            label = "" if row.at is None else f"at {row.at}"
            _band(panel, _values(row.members, name), colour, label)
            if row.at:
                panel.axvline(row.at, color=colour, lw=0.7, ls=":")
        panel.set_title(members[0].label.partition(", at step")[0] + _rest(members[0]), fontsize=8)
        if limits is not None:
            panel.set_ylim(*limits)
        if panel.get_legend_handles_labels()[1]:
            panel.legend(fontsize=6.5, frameon=False, loc="best")
    figure.supylabel(axis, fontsize=9)
    figure.supxlabel("step", fontsize=9)
    return figure


def _rest(row: Row) -> str:
    """What stands in a label behind the step of its correction."""
    behind = row.label.partition(", at step")[2]
    return behind[behind.index(" / ") :] if " / " in behind else ""


def _is_untreated(row: Row, like: Row) -> bool:
    return row.variants == {**like.variants, "correction": UNTREATED_NAME}


def _quantiles(table: Sequence[Row]) -> Figure:
    """One panel a group: 5 % and 95 % quantiles of the clipped log-ratio by advantage sign."""
    figure, grid = _grid(len(table))
    lines = (
        ("q05_negative", NEGATIVE, "A < 0", False),
        ("q95_negative", NEGATIVE, "", False),
        ("q05_positive", POSITIVE, "A > 0", False),
        ("q95_positive", POSITIVE, "", False),
        ("twin_q05_negative", TWIN, "A < 0, BF16 twin, 5 %", True),
    )
    for panel, row in zip(grid, table, strict=False):
        for name, colour, label, dashed in lines:
            _band(panel, _values(row.members, name), colour, label, dashed=dashed)
        panel.set_yscale("symlog", linthresh=0.1)
        panel.axhline(0, color="black", lw=0.5)
        panel.set_title(row.label, fontsize=8)
    for panel in grid[: len(table)]:
        if panel.get_legend_handles_labels()[1]:
            panel.legend(fontsize=6.5, frameon=False, loc="best")
            break
    figure.supylabel("log-ratio, nats", fontsize=9)
    figure.supxlabel("step", fontsize=9)
    return figure


def _grid(count: int) -> tuple[Figure, list[Any]]:
    columns = min(COLUMNS, max(count, 1))
    lines = math.ceil(max(count, 1) / columns)
    figure = Figure(figsize=(3.1 * columns + 0.4, 2.2 * lines + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
    for panel in panels[count:]:
        panel.set_visible(False)
    for panel in panels:
        panel.tick_params(labelsize=7)
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _values(members: Sequence[Figures], name: str) -> NDArray[np.float64]:
    """[seeds, steps], NaN where there is nothing."""
    series = [getattr(member.series, name) for member in members]
    if name == "reward":
        series = [smoothed(one) for one in series]
    values = np.full((len(series), max(map(len, series))), np.nan)
    for row, one in zip(values, series, strict=True):
        row[: len(one)] = [np.nan if value is None else value for value in one]
    return values


def _band(panel: Any, values: NDArray[np.float64], colour: str, label: str, *, dashed: bool = False) -> None:
    seen = np.isfinite(values)
    count = seen.sum(0)
    steps = np.flatnonzero(count)
    if not len(steps):
        return
    chosen = np.where(seen, values, 0.0)[:, steps]
    mean = chosen.sum(0) / count[steps]
    spread = np.sqrt((np.where(seen[:, steps], chosen - mean, 0.0) ** 2).sum(0) / np.maximum(count[steps] - 1, 1))
    panel.plot(steps, mean, color=colour, lw=1.2, ls="--" if dashed else "-", label=label or None)
    if len(values) > 1 and not dashed:
        panel.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.18, lw=0)


def _drawn(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()
