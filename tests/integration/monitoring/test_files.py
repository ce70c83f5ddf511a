"""The files that are shipped for Prometheus, Alertmanager and Grafana, read by the programs themselves."""

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from monitoring import program

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
RULES = DEPLOY / "prometheus/alerts.rules.yml"
NOT_OURS = {"up", "process_start_time_seconds"}
pytestmark = pytest.mark.prometheus


def ran(*command: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(
    "command",
    [
        ("promtool", "check", "rules", "prometheus/alerts.rules.yml"),
        ("promtool", "test", "rules", "prometheus/alerts.test.yml"),
        ("promtool", "check", "config", "--syntax-only", "prometheus/prometheus.yml"),
        ("amtool", "check-config", "alertmanager/alertmanager.yml"),
    ],
    ids=" ".join,
)
def test_each_file_is_what_its_program_expects(command: tuple[str, ...]) -> None:
    name, *arguments, path = command
    done = ran(program(name), *arguments, DEPLOY / path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried_and_silent_where_nothing_is_wrong() -> None:
    tests = yaml.safe_load((DEPLOY / "prometheus/alerts.test.yml").read_text())["tests"]
    tried = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert tried == {rule["alert"] for rule in rules()}


def test_every_alert_tells_how_bad_it_is_and_what_it_means() -> None:
    for rule in rules():
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_metrics_are_named_as_prometheus_asks(watched: Any) -> None:
    done = ran(program("promtool"), "check", "metrics", given=watched.page)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_alert_asks_for_metrics_that_there_are(watched: Any) -> None:
    known = set(re.findall(r"^# TYPE (\w+) ", watched.page, re.MULTILINE))
    known |= {f"{name}_bucket" for name in known} | NOT_OURS
    for rule in rules():
        asked = set(re.findall(r"\b(?:trimtab|process)_\w+|\bup\b", rule["expr"]))
        assert asked
        assert asked <= known, rule["alert"]


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        ("severity=critical alertname=TrimtabIncidentCritical job=run", "own,pager,chat"),
        ("severity=warning alertname=TrimtabIncidentWarning job=run", "own,chat"),
        ("severity=info alertname=TrimtabJobsNotExported", "nobody"),
    ],
)
def test_alerts_reach_whom_they_are_for(labels: str, receivers: str) -> None:
    where = f"--config.file={DEPLOY / 'alertmanager/alertmanager.yml'}"
    assert ran(program("amtool"), "config", "routes", "test", where, *labels.split()).stdout.strip() == receivers


def test_the_panels_of_the_dashboard_lie_beside_each_other() -> None:
    panels = json.loads((DEPLOY / "grafana/trimtab.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
