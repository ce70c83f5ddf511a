"""A service with a run that fails, a real Prometheus that scrapes it by the shipped configuration and rules, and a real
Alertmanager that tells a webhook receiver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from access_runs import bearing, issued
from agent_runs import Plant, step_summary
from api_runs import drive
from monitoring import PROGRAMS, NoMonitoringError, Prometheus, alertmanager, program, prometheus
from receivers import Receiver

from trimtab.api.access.scopes import Scope
from trimtab.api.client import Client
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.hooks.records import NonFinite

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


@pytest.fixture(autouse=True, scope="session")
def programs() -> None:
    """Every program that is needed; without one the tests are skipped, but not in CI."""
    try:
        for name in PROGRAMS:
            program(name)
    except NoMonitoringError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Everything that runs."""

    client: Client
    page: str
    """What is scraped."""
    prometheus: Prometheus
    alertmanager: httpx.Client
    receiver: Receiver


def at_once(rules: dict[str, Any]) -> dict[str, Any]:
    """The rules, but for how long something has to last: a test waits for conditions, not for minutes."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
            rule.pop("keep_firing_for", None)
    return rules


def scraping(url: str, token: Path, alerts_to: str) -> dict[str, Any]:
    """The shipped configuration, with the addresses and the token of the test, and quickly."""
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    config["alerting"]["alertmanagers"][0]["static_configs"] = [{"targets": [httpx.URL(alerts_to).netloc.decode()]}]
    (scrape,) = config["scrape_configs"]
    del scrape["dns_sd_configs"]
    scrape["authorization"]["credentials_file"] = str(token)
    scrape["static_configs"] = [{"targets": [httpx.URL(url).netloc.decode()]}]
    return config


def telling(url: str) -> dict[str, Any]:
    """The shipped configuration of Alertmanager, with one receiver, at once."""
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text())
    config["route"] |= {"receiver": "own", "group_wait": "0s", "group_interval": "1s", "routes": []}
    config["receivers"] = [one for one in config["receivers"] if one["name"] == "own"]
    config["receivers"][0]["webhook_configs"][0]["url"] = url
    return config


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("monitoring")
    rules = at_once(yaml.safe_load((DEPLOY / "prometheus/alerts.rules.yml").read_text()))
    (folder / "alerts.rules.yml").write_text(yaml.safe_dump(rules))
    service = Service.open(folder / "agent.db")
    admin, token = issued(service, Scope.ADMIN), folder / "token"
    token.write_text(issued(service, Scope.READ))
    with running(service) as url, Client(url, admin) as client, Receiver() as own:
        drive(client, Plant(seed=0, noisy_from=0, job="lost"), 16)
        drive(client, Plant(seed=0, job="fine"), 16)
        broken = {"old_logprobs": NonFinite(nan=3, neginf=2)}
        for step in range(2):
            summary = step_summary(step, nonfinite=broken, scalars={"grad_norm": float("nan"), "reward_mean": 0.5})
            client.ingest(replace(summary, job="broken"))
        with bearing(url, admin) as http:
            page = http.get("/metrics").text
        with (
            alertmanager(folder, yaml.safe_dump(telling(own.url))) as alerts,
            prometheus(folder, yaml.safe_dump(scraping(url, token, str(alerts.base_url)))) as watching,
        ):
            yield Watched(client=client, page=page, prometheus=watching, alertmanager=alerts, receiver=own)
    service.close()
