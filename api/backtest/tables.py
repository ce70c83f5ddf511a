"""Scores as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group
from rich.table import Table
from rich.text import Text

from trimtab.api.backtest.rates import Rate
from trimtab.api.backtest.recorded import RecordedScores, RunScore
from trimtab.api.backtest.scenarios import Label
from trimtab.api.backtest.scores import Scores


def drawn_table(scores: Scores) -> Group:
    """Delays, false alarms by scenario and false alarms by detector."""
    delays = _table("failing runs", "onset", "median", "95 %", "worst", "missed", "bar", "seen by")
    for one in scores.detections:
        styles = {True: "green", False: "red", None: "none"}
        told = one.delay
        delays.add_row(
            one.title,
            str(one.onset),
            _steps(told.median),
            f"{_steps(told.low)} to {_steps(told.high)}",
            Text(_steps(told.worst), styles[one.met]),
            f"{told.missed} of {told.runs}" if told.missed else "",
            "" if one.bar is None else f"{one.bar}",
            _counts(one.seen_by),
        )
    quiet = _table("harmless runs", "label", "steps", "alerts", "per 1000", "per 10,000 (95 %)", "by")
    for run in scores.quiet:
        label = run.label.value if run.label is Label.HEALTHY else "counts neither way"
        quiet.add_row(run.title, label, *_rate(run.rate), _counts(run.by_detector))
    return Group(delays, "", quiet, "", _false_alarms(scores.false_alarms, scores.by_detector))


def recorded_table(scores: RecordedScores) -> Group:
    """One line for each run, and false alarms by detector."""
    runs = _table("run", "label", "steps", "cause", "first alert", "half the reward", "false", "alerts by")
    for one in scores.runs:
        runs.add_row(*_run(one))
    parts: list[Table | str] = [runs, ""]
    if scores.delay is not None:
        told = scores.delay
        parts += [
            f"{scores.in_time} of {told.runs} failing runs were seen before they had lost half of their reward; "
            f"median delay {_steps(told.median)} steps, worst {_steps(told.worst)}",
            "",
        ]
    return Group(*parts, _false_alarms(scores.false_alarms, scores.by_detector))


def _run(one: RunScore) -> tuple[str | Text, ...]:
    failing = one.run.label is Label.FAILING
    first = "" if one.first is None else str(one.first.at)
    return (
        one.run.file,
        one.run.label.value,
        str(one.steps),
        str(one.run.cause) if failing else "",
        Text(first or "none", "green" if one.in_time else "red") if failing else first,
        "" if one.run.half is None else str(one.run.half),
        Text(str(len(one.false)), "red" if one.false else "none"),
        ", ".join(f"{alert.what} {alert.at}" for alert in one.alerts),
    )


def _table(*headings: str) -> Table:
    return Table(*headings, box=None, header_style="dim")


def _false_alarms(together: Rate, by_detector: Mapping[str, Rate]) -> Table:
    table = _table("false alarms", "healthy steps", "alerts", "per 1000", "per 10,000 (95 %)")
    for what, rate in {**by_detector, "all together": together}.items():
        table.add_row(what, *_rate(rate))
    return table


def _rate(rate: Rate) -> tuple[str, str, str, str]:
    interval = f"{1e4 * rate.low:.2f} to {1e4 * rate.high:.2f}"
    return str(rate.steps), str(rate.alarms), f"{1e3 * rate.per_step:.3f}", f"{1e4 * rate.per_step:.2f} ({interval})"


def _steps(steps: float | None) -> str:
    return "never" if steps is None else f"{steps:.0f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.items())
