"""Probes, metrics, OpenAPI, and what stands in front of the app."""

import json
import sqlite3
from collections import defaultdict
from pathlib import Path

import httpx
import pytest
from agent_runs import Plant
from api_runs import drive

from trimtab.api.client import Client, ClientError


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
    assert http.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_foreign_host_is_refused(http: httpx.Client, host: str) -> None:
    response = http.get("/v1/jobs", headers={"host": host})
    assert response.status_code == 403
    assert response.json()["errors"][0]["field"] == "Host"


def test_a_page_of_another_origin_may_not_write(http: httpx.Client) -> None:
    body = {"mode": "auto"}
    assert http.put("/v1/jobs/run", json=body, headers={"origin": "http://evil.example"}).status_code == 403
    assert http.put("/v1/jobs/run", json=body, headers={"origin": "null"}).status_code == 403
    assert http.get("/v1/jobs").json()["jobs"] == []
    own = str(http.base_url).rstrip("/")
    assert http.put("/v1/jobs/run", json=body, headers={"origin": own}).status_code == 200


def test_a_form_is_no_json(http: httpx.Client) -> None:
    response = http.post(
        "/v1/summaries", content='{"job":"run","attempt":1,"step":0}', headers={"content-type": "text/plain"}
    )
    assert response.status_code == 422
    assert http.get("/v1/jobs").json()["jobs"] == []


def test_the_page_is_served_under_a_strict_policy(http: httpx.Client) -> None:
    response = http.get("/")
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert http.get("/static/app/main.js").status_code == 200


@pytest.mark.parametrize("path", ["/nothing", "/static/../app.py", "/docs", "/v1/jobs/run/nothing"])
def test_what_is_not_there_gets_404_in_the_one_shape(http: httpx.Client, path: str) -> None:
    response = http.get(path)
    assert response.status_code == 404
    assert set(response.json()["errors"][0]) == {"field", "value", "message"}


def test_the_wrong_method_gets_405_in_the_one_shape(http: httpx.Client) -> None:
    response = http.delete("/v1/jobs")
    assert response.status_code == 405
    assert response.json()["errors"]
    assert (response.headers["allow"], http.post("/v1/jobs/run/controls").headers["allow"]) == ("GET", "GET, PATCH")


def test_every_request_body_has_examples_that_the_service_reads(client: Client, http: httpx.Client) -> None:
    drive(client, Plant(seed=0, job="cliff-auto"), 1)
    sent = 0
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            if "requestBody" not in operation:
                continue
            content = operation["requestBody"]["content"]["application/json"]
            named = [one["value"] for one in content.get("examples", {}).values()]
            for example in content["schema"].get("examples", named):
                target = path.format_map(defaultdict(lambda: 1, job="cliff-auto", detector="reward"))
                response = http.request(method, target, json=example)
                assert response.status_code != 422, (method, path, response.text)
                sent += 1
    assert sent == 25


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
