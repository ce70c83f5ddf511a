"""The demo's table, its terminal picture, and `summary.json`."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.api.demo.outcome import RunOutcome
from trimtab.trainer.scenarios import SCENARIOS, Scenario

SUMMARY_SCHEMA = 1
BLOCKS = " ▁▂▃▄▅▆▇█"
WIDTH = 44
HEADINGS = (
    "reward",
    "in\nBF16",
    "en-\ntropy",
    "gar-\nbage",
    "mis-\nmatch",
    "first\nalert",
    "first\naction",
    "re-\ncovers",
)
"""Reward under the run's own sampler and of the policy sampled in BF16; entropy and mismatch (standard deviation of
log p - log q) in nats; garbage as a share of responses; first alert and action as steps; recovery in steps after it."""

Runs = Sequence[RunOutcome]


def write_summary(path: Path, runs: Runs) -> dict[str, Any]:
    """Write `summary.json` (its fields are `RunOutcome`'s; see docs/demo.md) and return its content."""
    content = {
        "schema": SUMMARY_SCHEMA,
        "notes": {name: SCENARIOS[name].note for name in dict.fromkeys(run.scenario for run in runs)},
        "runs": [dataclasses.asdict(run) for run in runs],
    }
    path.write_text(json.dumps(content, indent=2))
    return content


def report(runs: Runs) -> RenderableType:
    """One table of all runs; then, scenario by scenario, the first seed's rewards and what was seen and done."""
    scenarios = [(SCENARIOS[name], [run for run in runs if run.scenario == name]) for name in SCENARIOS]
    scenarios = [(scenario, members) for scenario, members in scenarios if members]
    parts: list[RenderableType] = [_table(scenarios)]
    for scenario, members in scenarios:
        first = [run for run in members if run.seed == members[0].seed]
        parts += [
            Text(),
            Text(f"{scenario.title}: {scenario.note}", style="bold"),
            Text("reward, step by step (a: first alert, A: first action)", style="dim"),
            *(_line(run) for run in first),
            Text("what was seen and done", style="dim"),
            *(line for run in first for line in _told(run)),
        ]
    return Group(*parts)


def _table(scenarios: Sequence[tuple[Scenario, Runs]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("run", no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for scenario, runs in scenarios:
        table.add_row(Text(scenario.name, style="bold"))
        for members in _by_name(runs):
            table.add_row(
                members[0].title,
                _spread(members, lambda run: run.reward_final, "{:.2f}"),
                _spread(members, lambda run: run.reward_eval_bf16, "{:.2f}"),
                _spread(members, lambda run: run.entropy_final, "{:.2f}"),
                _spread(members, lambda run: run.garbage_final, "{:.2f}"),
                _spread(members, lambda run: run.mismatch_final, "{:.2f}"),
                _range(members, lambda run: run.first_alert_step),
                _range(members, lambda run: run.first_action_step),
                _range(members, lambda run: run.steps_to_recover),
            )
    return table


def _by_name(runs: Runs) -> Iterable[list[RunOutcome]]:
    for name in dict.fromkeys(run.name for run in runs):
        yield [run for run in runs if run.name == name]


def _spread(runs: Runs, value: Callable[[RunOutcome], float | None], form: str) -> str:
    """Mean, and the sample standard deviation where there are several seeds."""
    values = [number for run in runs if (number := value(run)) is not None]
    if not values:
        return "-"
    mean = sum(values) / len(values)
    if len(values) == 1:
        return form.format(mean)
    deviation = math.sqrt(sum((number - mean) ** 2 for number in values) / (len(values) - 1))
    return f"{form.format(mean)}\n±{form.format(deviation)}"


def _range(runs: Runs, value: Callable[[RunOutcome], int | None]) -> str:
    values = [number for run in runs if (number := value(run)) is not None]
    if not values:
        return "-"
    text = str(min(values)) if min(values) == max(values) else f"{min(values)}-{max(values)}"
    return text if len(values) == len(runs) else f"{text}\n{len(values)} of {len(runs)}"


def _told(run: RunOutcome) -> Iterable[Text]:
    """What was alerted, and what was toggled and why, in order, a line each."""
    changes: dict[tuple[int, str], list[str]] = {}
    for change in run.controls_timeline:
        changes.setdefault((change.step, change.reason), []).append(f"{change.control}={change.after}")
    told = [(step, f"{', '.join(what)}: {why}") for (step, why), what in changes.items()]
    if run.first_alert_step is not None:
        told.append((run.first_alert_step, f"alert: {run.alert}"))
    for step, what in sorted(told, key=lambda line: line[0]):
        yield Text.assemble((f"step {step}", "yellow"), f" {run.title}: {what}")


def _line(run: RunOutcome) -> Text:
    """Reward as one line of blocks, with the first alert (a) and the first action (A) below it."""
    cells = [run.rewards[index * len(run.rewards) // WIDTH] for index in range(WIDTH)]
    line = Text("".join(BLOCKS[min(int(cell * len(BLOCKS)), len(BLOCKS) - 1)] for cell in cells), style="green")
    marks = [" "] * WIDTH
    for step, mark in ((run.first_alert_step, "a"), (run.first_action_step, "A")):
        if step is not None:
            marks[min(step * WIDTH // len(run.rewards), WIDTH - 1)] = mark
    below = "".join(marks).rstrip()
    legend = f"\n{below}" if below else ""
    return Text.assemble(line, f" {run.rewards[-1]:.2f} {run.title}", (legend, "yellow"))
