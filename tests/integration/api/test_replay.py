"""What if: a replay on the service, under other settings."""

from typing import Any

import httpx
import pytest
from agent_runs import Plant
from api_runs import drive

from trimtab.api.client import Client
from trimtab.api.routes import replay
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.storage.database import Database


def test_the_same_settings_make_the_same_of_a_ledger_on_either_database(database_url: str) -> None:
    database = Database(database_url)
    database.migrate()
    service = Service(database)
    with running(service) as url, Client(url) as client:
        client.register("run", mode="auto")
        drive(client, Plant(seed=0, noisy_from=0), 15)
        done = client.replay("run")
        assert (done.identical, done.entries, done.gone, done.added) == (True, 16, [], [])
        tolerant = client.replay("run", {"detectors.mismatch.std_limit": 0.9, "detectors.clipping": {"limit": 500.0}})
        assert not tolerant.identical
        assert "incident_firing" in {event["kind"] for event in tolerant.gone}
        assert tolerant.gone_total == len(tolerant.gone)
        assert tolerant.difference is not None
        assert [event.kind for event in client.events("run")].count("controls_changed") == 1  # and nothing was changed
    service.close()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"settings": {"detectors.mismatch.std_limit": -1.0}}, "settings.detectors.mismatch.std_limit"),
        ({"settings": {"detectors": {"nope": 1}}}, "settings.detectors.nope"),
        ({"settings": {"": 1}}, "settings"),
        ({"settings": 3}, "settings"),
        ({"setings": {}}, "setings"),
    ],
)
def test_settings_that_cannot_be_are_told_before_anything_is_folded(
    client: Client, http: httpx.Client, body: dict[str, Any], field: str
) -> None:
    client.register("run")
    response = http.post("/v1/jobs/run/replay", json=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"].startswith(field)


def test_settings_that_never_end_are_refused(client: Client, http: httpx.Client) -> None:
    client.register("run")
    deep = '{"settings":' + '{"a":' * 900 + "1" + "}" * 901
    response = http.post("/v1/jobs/run/replay", content=deep, headers={"content-type": "application/json"})
    assert response.status_code == 422


def test_a_long_ledger_is_for_the_command_line(
    client: Client, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(client, Plant(seed=0), 3)
    monkeypatch.setattr(replay, "MOST_ROWS", 2)
    response = http.post("/v1/jobs/run/replay", json={})
    assert response.status_code == 422
    assert response.json()["errors"][0]["message"].startswith("has 3 rows in its ledger, and 2 are replayed at most")
