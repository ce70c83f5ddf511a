"""From a failing run to somebody's webhook, by way of a real Prometheus and a real Alertmanager."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from monitoring import alerts_in, eventually

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/trimtab.json").read_text())
NOT_OURS = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_start_time_seconds"}
pytestmark = pytest.mark.prometheus


def test_jobs_keep_their_names_and_the_agent_has_that_of_the_scrape(watched: Any) -> None:
    steps = eventually(lambda: watched.prometheus.values("trimtab_step", "job"), "a scrape")
    assert steps == {"lost": "15", "fine": "15", "broken": "1"}
    assert watched.prometheus.values("up", "job") == {"trimtab": "1"}
    assert watched.prometheus.values("trimtab_database_up", "job") == {"trimtab": "1"}
    assert [target["health"] for target in watched.prometheus.targets()] == ["up"]


def test_what_is_no_number_can_be_asked_for(watched: Any) -> None:
    eventually(lambda: watched.prometheus.query("trimtab_step"), "a scrape")
    assert watched.prometheus.values("trimtab_grad_norm{job='broken'} != trimtab_grad_norm", "job") == {"broken": "NaN"}
    counts = watched.prometheus.values("sum by (kind) (trimtab_nonfinite_tokens_total{job='broken'})", "kind")
    assert counts == {"nan": "6", "-inf": "4"}


def test_every_rule_can_be_evaluated(watched: Any) -> None:
    def evaluated() -> list[dict[str, Any]] | None:
        rules: list[dict[str, Any]] = watched.prometheus.rules()
        return rules if all(rule["health"] != "unknown" for rule in rules) else None

    rules = eventually(evaluated, "every rule is evaluated")
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}
    assert len(rules) == 25


def test_an_incident_reaches_a_webhook_and_so_does_its_end(watched: Any) -> None:
    wanted = {"alertname": "TrimtabIncidentCritical", "job": "lost", "detector": "mismatch"}

    def told(status: str) -> dict[str, Any] | None:
        alerts = alerts_in(watched.receiver, **wanted)
        return next((alert for alert in alerts if alert["status"] == status), None)

    firing = eventually(lambda: told("firing"), "the incident is told of")
    assert firing["labels"]["severity"] == "critical"
    assert firing["annotations"]["summary"] == "lost: mismatch is critical"
    assert alerts_in(watched.receiver, alertname="TrimtabIncidentCritical", job="fine") == []
    active = watched.alertmanager.get("/api/v2/alerts", params={"filter": 'job="lost"'}).json()
    assert (
        wanted.items() <= next(one for one in active if one["fingerprint"] == firing["fingerprint"])["labels"].items()
    )
    watched.client.archive("lost", reason="it has ended")
    resolved = eventually(lambda: told("resolved"), "its end is told of")
    assert resolved["startsAt"] == firing["startsAt"]
    assert watched.prometheus.query("trimtab_step{job='lost'}") == []


def test_a_value_that_is_not_finite_reaches_a_webhook(watched: Any) -> None:
    def told() -> list[dict[str, Any]]:
        return alerts_in(watched.receiver, alertname="TrimtabNonFiniteTokens", job="broken")  # type: ignore[no-any-return]

    alert = eventually(told, "the values are told of")[0]
    assert alert["labels"]["tensor"] == "old_logprobs"
    assert alert["labels"]["severity"] == "critical"


def queries(part: Any) -> Iterator[str]:
    """Every query that a part of the dashboard holds."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name in ("expr", "query") and isinstance(value, str) and "trimtab_" in value:
                yield value
            else:
                yield from queries(value)
    elif isinstance(part, list):
        for value in part:
            yield from queries(value)


def test_every_query_of_the_dashboard_is_one_and_asks_for_what_there_is(watched: Any) -> None:
    eventually(lambda: watched.prometheus.query("trimtab_step"), "a scrape")
    found = list(queries(DASHBOARD))
    assert len(found) > 30
    known = set(re.findall(r"^# TYPE (\w+) ", watched.page, re.MULTILINE)) | NOT_OURS
    known |= {f"{name}_{part}" for name in known for part in ("bucket", "count", "sum")}
    for query in found:
        label_values = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        expression = label_values[1] if label_values else query
        expression = (
            expression.replace("$__rate_interval", "5m")
            .replace("$__interval", "1m")
            .replace("$job", "lost")
            .replace("$datasource", "")
        )
        watched.prometheus.query(expression)
        named = set(re.findall(r"\b(?:trimtab|process)_\w+", expression)) | (set(re.findall(r"\bup\b", expression)))
        assert named <= known, query
