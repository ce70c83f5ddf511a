"""The demo's picture: reward over steps, one panel a scenario, with alerts and actions marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trimtab.api.demo.outcome import SMOOTHING, RunOutcome
from trimtab.trainer.scenarios import SCENARIOS

COLOURS = {
    "bf16": "#6b7280",
    "unattended": "#dc2626",
    "agent": "#059669",
    "calibrated": "#2563eb",
    "clean": "#a16207",
}


def draw(path: Path, runs: Sequence[RunOutcome]) -> None:
    """Write the picture of the first seed's runs as a PNG."""
    seed = min(run.seed for run in runs)
    names = [name for name in SCENARIOS if any(run.scenario == name for run in runs)]
    figure = Figure(figsize=(6.4 * len(names), 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        scenario = SCENARIOS[name]
        for run in runs:
            if run.scenario == name and run.seed == seed:
                _curve(panel, run)
        panel.set_title(f"{scenario.title}\n{scenario.note}", fontsize=9)
        panel.set_xlabel("step")
        panel.set_ylim(0, 1.02)
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)
    panels[0].set_ylabel(f"reward under the run's own sampler ({SMOOTHING}-step mean)")
    figure.savefig(path, dpi=150)


def _curve(panel: Any, run: RunOutcome) -> None:
    smoothed = [
        sum(run.rewards[max(0, i - SMOOTHING + 1) : i + 1]) / min(i + 1, SMOOTHING) for i in range(len(run.rewards))
    ]
    colour = COLOURS[run.name]
    panel.plot(smoothed, color=colour, lw=1.8, label=f"{run.title}: {run.reward_final:.2f}")
    if run.first_alert_step is not None:
        panel.plot(run.first_alert_step, smoothed[run.first_alert_step], "v", color=colour, ms=7, zorder=3)
    if run.first_action_step is not None:
        panel.axvline(run.first_action_step, color=colour, lw=0.9, ls="--")
        what = ", ".join(
            change.control if change.after is True else f"{change.control}={change.after}"
            for change in run.controls_timeline
            if change.by != "run"
        )
        panel.annotate(
            what,
            (run.first_action_step, 0.04 if run.name == "agent" else 0.12),
            xytext=(4, 0),
            textcoords="offset points",
            fontsize=7,
            color=colour,
        )
