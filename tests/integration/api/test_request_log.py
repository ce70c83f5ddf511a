"""What is told of requests, by the whole app."""

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_runs import Plant

from trimtab.api.app import create_app
from trimtab.api.client import Client
from trimtab.api.service import Service
from trimtab.hooks.wire import encode

LOGGER = "trimtab.api.requests"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger=LOGGER):
        yield


def test_an_id_is_taken_over_where_it_is_one_and_made_otherwise(http: httpx.Client) -> None:
    answer = http.get("/livez", headers={"x-request-id": "3f2a-7.b/4"})
    assert answer.headers["x-request-id"] == "3f2a-7.b/4"
    for insane in ("", "a b", "x" * 129, "<script>", 'a"b'):
        made = http.get("/v1/nothing", headers={"x-request-id": insane}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{16}", made), insane


def test_changes_and_failures_are_told_and_nothing_else(
    client: Client, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    plant = Plant(seed=0)
    client.ingest(plant.advance())
    http.get("/livez")
    http.get("/readyz")
    http.get("/metrics")
    http.get("/v1/jobs/run")
    assert told(caplog) == []
    client.set_mode("run", "advise", reason="to see")
    http.get("/v1/jobs/nope?token=secret")
    http.post("/v1/summaries", json={"job": "run", "step": "many"})
    http.get("/v1/nothing")
    lines = [
        "PUT /v1/jobs/run/mode: 200",
        "GET /v1/jobs/nope: 404",
        "POST /v1/summaries: 422",
        "GET /v1/nothing: 404",
    ]
    while len(told(caplog)) < len(lines):  # a line is written once its answer has been sent
        http.get("/livez")
    assert told(caplog) == lines


def test_a_line_tells_who_asked_for_what_and_how_long_it_took(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.ingest(Plant(seed=0).advance())
    client.set_mode("run", "advise", reason="to see")
    while not told(caplog):
        client.jobs()
    (record,) = (record for record in caplog.records if record.name == LOGGER)
    fields: dict[str, Any] = vars(record)
    assert (fields["method"], fields["route"], fields["job"], fields["status"]) == (
        "PUT",
        "/v1/jobs/{job}/mode",
        "run",
        200,
    )
    assert (fields["actor"], fields["token"], fields["ip"]) == ("local", None, "127.0.0.1")
    assert fields["duration_s"] > 0
    assert record.levelno == logging.INFO


def test_what_nobody_expected_gets_500_and_the_log_the_details(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service.open(tmp_path / "agent.db")
    app = create_app(service)

    @app.get("/broken")
    def broken() -> None:
        raise ZeroDivisionError("by design")

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            return await http.get("/broken", headers={"x-request-id": "abc"})

    answer = asyncio.run(asked())
    counted = app.state.metrics.exposition().decode()
    service.close()
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "abc"
    assert answer.headers["x-content-type-options"] == "nosniff"
    message = "internal error (ZeroDivisionError); the service's log has the details of abc"
    assert answer.json() == {"errors": [{"field": "", "value": None, "message": message}]}
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert (record.name, record.getMessage()) == (LOGGER, "GET /broken has failed")
    assert record.exc_info is not None
    assert "by design" in str(record.exc_info[1])
    assert vars(record)["status"] == 500
    assert 'trimtab_http_responses_total{code="500"} 1.0' in counted


def test_a_sender_that_hangs_up_is_no_failure(url: str, service: Service, caplog: pytest.LogCaptureFixture) -> None:
    body = encode(Plant(seed=0).advance())
    host, port = url.removeprefix("http://").split(":")

    async def hang_up() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/summaries HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[:10])
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        del reader

    asyncio.run(hang_up())
    with httpx.Client(base_url=url, trust_env=False) as http:
        while not told(caplog):
            http.get("/livez")
    assert told(caplog) == ["POST /v1/summaries: 499"]
    assert service.store.jobs() == []
