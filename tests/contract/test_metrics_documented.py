"""docs/prometheus.md tells of every metric and every alert that there is, and of no other."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.api.app import create_app
from trimtab.api.metrics.signals import SIGNAL_METRICS
from trimtab.api.service import Service

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/prometheus.md").read_text()


def rows(header: str) -> list[list[str]]:
    """The cells of every table that has this header, without it."""
    found = []
    for part in PAGE.split(f"\n{header}\n")[1:]:
        table = part.partition("\n\n")[0].splitlines()[1:]
        found += [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    assert found
    return found


@pytest.fixture
def exported(tmp_path: Path) -> dict[str, str]:
    """Type by name of all that an app exports, but for signals and for what every process does."""
    service = Service.open(tmp_path / "agent.db")
    page: str = create_app(service).state.metrics.exposition().decode()
    service.close()
    found = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))
    signals = {name for name, _ in SIGNAL_METRICS.values()}
    assert signals <= found.keys()
    return {
        name: kind
        for name, kind in found.items()
        if name.startswith("trimtab_") and name not in signals and not name.endswith("_created")
    }


def test_every_metric_has_a_row_with_its_type(exported: dict[str, str]) -> None:
    told = rows("| metric | type | further labels | what it is |") + rows("| metric | type | labels | what it is |")
    assert {name.strip("`"): kind for name, kind, *_ in told} == exported


def test_signals_that_are_named_are_called_so() -> None:
    section = PAGE.partition("Every [signal]")[2].partition("\n\n")[0]
    named = re.findall(r"`(trimtab_\w+)`", section)
    assert len(named) > 4
    assert set(named) - {"trimtab_"} <= {name for name, _ in SIGNAL_METRICS.values()}


def test_every_alert_has_a_row_with_its_severity() -> None:
    rules: dict[str, Any] = yaml.safe_load((ROOT / "deploy/prometheus/alerts.rules.yml").read_text())
    expected = [(rule["alert"], rule["labels"]["severity"]) for group in rules["groups"] for rule in group["rules"]]
    assert [
        (name.strip("`"), grade) for name, grade, *_ in rows("| alert | severity | what it means | what to do |")
    ] == expected
