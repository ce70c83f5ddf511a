"""Probes, metrics, OpenAPI, and what stands in front of the app."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from agent_runs import Plant
from api_runs import drive
from prometheus_client.parser import text_string_to_metric_families

from trimtab.agent.signals import SIGNALS
from trimtab.api.app import create_app
from trimtab.api.client import Client, ClientError
from trimtab.api.metrics import QUIET_AFTER
from trimtab.api.service import Service
from trimtab.storage.database import Database


def scraped(http: httpx.Client) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and label values, which the exposition sorts by label name."""
    response = http.get("/metrics")
    assert response.status_code == 200
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_metrics_tell_the_last_step_of_every_job(client: Client, http: httpx.Client) -> None:
    client.register("saved", mode="auto")
    drive(client, Plant(seed=0, noisy_from=0, job="saved"), 16)
    drive(client, Plant(seed=0, noisy_from=0, job="lost"), 16)
    found = scraped(http)
    assert found["trimtab_step"] == {("saved",): 15.0, ("lost",): 15.0}
    assert found["trimtab_controls_generation"][("saved",)] == found["trimtab_controls_applied_generation"][("saved",)]
    assert found["trimtab_controls_generation"][("saved",)] >= 1
    assert found["trimtab_detector_severity"][("mismatch", "lost")] == 2.0
    assert found["trimtab_incidents"][("lost", "firing", "critical")] >= 1
    assert found["trimtab_ingest_summaries_total"][("stored",)] == 32
    assert found["trimtab_ingest_duration_seconds_count"][()] == 32
    assert 0 <= found["trimtab_signal_reward_mean"][("lost",)] <= 1
    assert found["trimtab_build_info"]


def test_metrics_count_what_became_of_every_summary(client: Client, http: httpx.Client) -> None:
    summary = Plant(seed=0).advance()
    client.ingest(summary)
    client.ingest(summary)
    with pytest.raises(ClientError):
        client.ingest(replace(summary, generation=1))
    for bad in ({}, {"job": "run", "attempt": 1, "step": 2**60}):
        assert http.post("/v1/summaries", json=bad).status_code == 422
    assert scraped(http)["trimtab_ingest_summaries_total"] == {
        ("stored",): 1,
        ("duplicate",): 1,
        ("ignored",): 0,
        ("conflict",): 1,
        ("invalid",): 2,
        ("failed",): 0,
    }


def test_labels_are_bounded_whatever_a_run_reports(client: Client, http: httpx.Client) -> None:
    summary = Plant(seed=0).advance()
    client.ingest(replace(summary, scalars={f"mine_{i}": float(i) for i in range(300)}))
    found = scraped(http)
    assert {name.removeprefix("trimtab_signal_") for name in found if name.startswith("trimtab_signal_")} <= set(
        SIGNALS
    )
    assert not any("mine" in name for name in found)


def test_a_job_that_has_gone_quiet_is_exported_no_more(db: Path) -> None:
    now = [1000.0]
    service = Service(Database(db), clock=lambda: now[0])
    service.store.database.migrate()
    service.ingest(Plant(seed=0).advance())
    metrics = create_app(service).state.metrics
    assert b'trimtab_step{job="run"}' in metrics.exposition()
    now[0] += QUIET_AFTER + 1
    assert b"trimtab_step{" not in metrics.exposition()


def test_ready_while_the_schema_is_there_and_alive_always(http: httpx.Client, db: Path) -> None:
    assert http.get("/readyz").json() == http.get("/livez").json() == {"status": "ok"}
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'other'")
    response = http.get("/readyz")
    assert response.status_code == 503
    assert response.json()["errors"] == [
        {
            "field": "database",
            "value": None,
            "message": "the schema is at other, not at 0006; restart the service to migrate it",
        }
    ]
    assert http.get("/livez").status_code == 200


def test_a_database_that_fails_gets_503_so_that_the_trainer_spools(
    client: Client, http: httpx.Client, db: Path
) -> None:
    with sqlite3.connect(db) as connection:
        connection.execute("DROP TABLE observations")
    with pytest.raises(ClientError, match="send it again later") as caught:
        client.ingest(Plant(seed=0).advance())
    assert caught.value.status == 503
    assert http.get("/v1/jobs").json() == {"jobs": []}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_foreign_host_is_refused(http: httpx.Client, host: str) -> None:
    response = http.get("/v1/jobs", headers={"host": host})
    assert response.status_code == 403
    assert response.json()["errors"][0]["field"] == "Host"


def test_a_page_of_another_origin_may_not_write(http: httpx.Client) -> None:
    body = {"mode": "auto"}
    assert http.put("/v1/jobs/run", json=body, headers={"origin": "http://evil.example"}).status_code == 403
    assert http.put("/v1/jobs/run", json=body, headers={"origin": "null"}).status_code == 403
    assert http.get("/v1/jobs").json() == {"jobs": []}
    own = str(http.base_url).rstrip("/")
    assert http.put("/v1/jobs/run", json=body, headers={"origin": own}).status_code == 200


def test_a_form_is_no_json(http: httpx.Client) -> None:
    response = http.post(
        "/v1/summaries", content='{"job":"run","attempt":1,"step":0}', headers={"content-type": "text/plain"}
    )
    assert response.status_code == 422
    assert http.get("/v1/jobs").json() == {"jobs": []}


def test_the_page_is_served_under_a_strict_policy(http: httpx.Client) -> None:
    response = http.get("/")
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert http.get("/static/app.js").status_code == 200


@pytest.mark.parametrize("path", ["/nothing", "/static/../app.py", "/docs", "/v1/jobs/run/nothing"])
def test_what_is_not_there_gets_404_in_the_one_shape(http: httpx.Client, path: str) -> None:
    response = http.get(path)
    assert response.status_code == 404
    assert set(response.json()["errors"][0]) == {"field", "value", "message"}


def test_the_wrong_method_gets_405_in_the_one_shape(http: httpx.Client) -> None:
    response = http.delete("/v1/jobs")
    assert response.status_code == 405
    assert response.json()["errors"]


def test_every_request_body_has_examples_that_the_service_reads(client: Client, http: httpx.Client) -> None:
    drive(client, Plant(seed=0, job="cliff-auto"), 1)
    sent = 0
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            if "requestBody" not in operation:
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            for example in schema["examples"]:
                target = path.format(job="cliff-auto", number=1, detector="reward")
                response = http.request(method, target, json=example)
                assert response.status_code != 422, (method, path, response.text)
                sent += 1
    assert sent == 10


def test_every_operation_is_described_and_its_errors_have_the_one_shape(http: httpx.Client) -> None:
    openapi = http.get("/openapi.json").json()
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert operation["description"], (method, path)
            for status, response in operation["responses"].items():
                if status.startswith("4"):
                    content = json.dumps(response["content"])
                    assert "#/components/schemas/Problems" in content, (method, path, status)


def test_a_silence_is_set_seen_and_cancelled(client: Client) -> None:
    client.ingest(Plant(seed=0).advance())
    [silence] = client.silence("run", "reward", steps=100, reason="a new dataset")
    assert (silence.fingerprint, silence.issuer, silence.until_tick) == ("run/reward", "operator", 102)
    assert client.unsilence("run", "reward", reason="it is in") == []
    with pytest.raises(ClientError, match="is not silenced") as caught:
        client.unsilence("run", "reward", reason="again")
    assert caught.value.status == 409
