"""`trimtab baselines`."""

from __future__ import annotations

from rich.text import Text

from trimtab.agent.thresholds import Threshold
from trimtab.api.baselines_view import BaselinesView, BaselineView
from trimtab.api.cli.options import AsJson, Job, Token, Url
from trimtab.api.cli.tables import as_wide_as_shown, table_of
from trimtab.api.client import DEFAULT_URL, Client


def baselines(job: Job, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Show what the agent takes for usual in a job, and where its detectors would alarm."""
    with Client(url, token) as client:
        view = client.baselines(job)
    if as_json:
        print(view.model_dump_json())
    else:
        _show(view)


def _show(view: BaselinesView) -> None:
    table = table_of("signal", "now", "usual", "spread", "anchor", "frozen by", "alarms")
    for signal in view.signals:
        alarms = "; ".join(map(_told, signal.thresholds))
        frozen = ", ".join(signal.frozen_by)
        rows: list[BaselineView | None] = [*signal.baselines] or [None]
        for one in rows:
            of_pass = "" if one is None or one.pass_index is None or len(rows) == 1 else f" (pass {one.pass_index + 1})"
            level, spread, anchor = (None, None, None) if one is None else (one.level, one.spread, one.anchor)
            usual = f"{one.warming} to go" if one is not None and one.warming else _number(level)
            cells = (_number(signal.value), usual, _number(spread), _number(anchor), frozen, alarms)
            table.add_row(Text(signal.name + of_pass), *map(Text, cells))
    as_wide_as_shown().print(table if view.signals else "nothing was observed yet", highlight=False)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _told(one: Threshold) -> str:
    rule = f": {one.rule}" if one.rule else ""
    needs = f", needs {one.needs}" if one.needs else ""
    return f"{one.statistic} {one.side} {one.value:.4g} ({one.detector}{rule}{needs})"
