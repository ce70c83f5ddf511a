"""trimtab's own notifications and a real Alertmanager: what is pushed to it, and what takes us for one."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from alerting import Clock, Office, firing, resolved
from monitoring import alertmanager, alerts_in, eventually
from receivers import Receiver

from trimtab.api.notify.shapes import SHAPES

pytestmark = pytest.mark.prometheus

CONFIG = """
route: {{receiver: own, group_by: [job], group_wait: 0s, group_interval: 1s}}
receivers: [{{name: own, webhook_configs: [{{url: "{url}", send_resolved: true}}]}}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An Alertmanager, and somebody whom it tells."""

    alertmanager: httpx.Client
    receiver: Receiver
    office: Office

    def active(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Alerts that are active there, by name and severity."""
        found = self.alertmanager.get("/api/v2/alerts", params={"active": True}).json()
        return {(alert["labels"]["name"], alert["labels"]["severity"]): alert for alert in found}


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    clock = Clock()
    clock.now = time.time() - 30  # what ends in the future has not ended there, however often we say so
    office = Office(f"sqlite:///{tmp_path / 'agent.db'}", clock)
    with Receiver() as own, alertmanager(tmp_path, CONFIG.format(url=own.url)) as alerts:
        yield Told(alertmanager=alerts, receiver=own, office=office)
    office.close()


def test_an_incident_is_active_there_until_it_is_resolved_here(told: Told) -> None:
    shape, office = SHAPES["alertmanager_api"], told.office
    office.add(
        str(told.alertmanager.base_url.join("/api/v2/alerts")),
        shape="alertmanager_api",
        timing=shape.timing,
    )
    office.happen(firing("reward", severity="warn"))
    office.work()
    assert office.attempts == [("alertmanager_api", "delivered")]
    (alert,) = told.active().values()
    assert alert["labels"] == {
        "alertname": "TrimtabIncident",
        "job": "run",
        "kind": "incident",
        "name": "reward",
        "severity": "warning",
    }
    assert alert["annotations"]["summary"] == "reward is wrong"
    eventually(lambda: alerts_in(told.receiver, name="reward", severity="warning"), "its receiver is told")

    office.happen(firing("reward", severity="critical"))
    office.work(seconds=2)
    eventually(lambda: told.active().keys() == {("reward", "critical")}, "the milder alert is over")
    assert told.active()["reward", "critical"]["startsAt"] == alert["startsAt"]

    office.happen(resolved("reward"))
    office.work(seconds=2)
    eventually(lambda: told.active() == {}, "nothing is active")
    ended = eventually(
        lambda: [one for one in alerts_in(told.receiver, severity="critical") if one["status"] == "resolved"],
        "its receiver is told of the end",
    )
    assert ended[0]["labels"]["name"] == "reward"
    assert {result for _, result in office.attempts} == {"delivered"}


def test_a_receiver_of_alertmanagers_gets_the_same_fields_from_us(told: Told) -> None:
    told.alertmanager.post(
        "/api/v2/alerts", json=[{"labels": {"alertname": "A", "job": "run"}, "annotations": {"summary": "x"}}]
    ).raise_for_status()
    theirs = eventually(lambda: told.receiver.received, "its receiver is told")[0].json
    with Receiver() as ours:
        told.office.add(ours, shape="alertmanager_webhook", timing=SHAPES["alertmanager_webhook"].timing)
        told.office.happen(firing("reward"))
        told.office.work(seconds=60)
        (request,) = ours.received
    body = request.json
    assert theirs.keys() <= body.keys()
    assert theirs["alerts"][0].keys() == body["alerts"][0].keys()
    assert body["version"] == theirs["version"] == "4"
    for field in theirs:
        assert type(body[field]) is type(theirs[field]), field
