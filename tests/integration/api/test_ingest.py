"""Ingest: exactly one row a key, one transaction an input, and errors that name the field."""

import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_runs import Plant
from api_runs import drive, serving

from trimtab.api.client import Client, ClientError
from trimtab.api.guard import MAX_BODY
from trimtab.api.service import Service
from trimtab.storage.codec import SUMMARY

GOOD: dict[str, Any] = {"job": "run", "attempt": 1, "step": 0}
JSON = {"content-type": "application/json"}


def test_a_first_summary_registers_its_job_in_mode_observe(client: Client) -> None:
    answer = client.ingest(Plant(seed=0).advance())
    assert (answer.result, answer.command) == ("stored", None)
    job = client.job("run")
    assert (job.mode, job.attempt, job.step, job.rows) == ("observe", 1, 0, 1)


def test_the_same_summary_again_changes_nothing_and_still_gets_the_command(client: Client, service: Service) -> None:
    client.register("run", mode="auto")
    plant = Plant(seed=0, noisy_from=0)
    summary = plant.advance()
    while (command := client.ingest(summary).command) is None:
        summary = plant.advance()
    before = service.store.recorded("run")
    again = client.ingest(summary)
    assert (again.result, again.command) == ("duplicate", command)
    assert service.store.recorded("run") == before


def test_key_order_and_number_spelling_do_not_make_another_summary(http: httpx.Client) -> None:
    first = '{"job": "run", "attempt": 1, "step": 0, "scalars": {"loss": 1, "grad_norm": "NaN"}}'
    second = '{"scalars": {"grad_norm": NaN, "loss": 1.0}, "step": 0, "attempt": 1, "job": "run", "rank": 0}'
    assert [http.post("/v1/summaries", content=text, headers=JSON).json()["result"] for text in (first, second)] == [
        "stored",
        "duplicate",
    ]


def test_other_content_under_a_key_gets_409_and_the_first_stays(client: Client, service: Service) -> None:
    summary = Plant(seed=0).advance()
    client.ingest(summary)
    with pytest.raises(ClientError, match="already stored with other content") as caught:
        client.ingest(replace(summary, scalars={"loss": 9.0}))
    assert caught.value.status == 409
    assert caught.value.problems[0].field == "attempt, step, rank"
    assert client.health("run").quarantined == 1
    assert service.store.recorded("run").entries[0].payload == SUMMARY.encode(summary)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"step": "many"}, "step", "should be a valid integer"),
        ({"step": -1}, "step", "-1 is negative"),
        ({"job": "a b"}, "job", "must be 1 to 128 letters"),
        ({"attempt": 2**60}, "attempt", "larger than 2**53"),
        ({"stepp": 3}, "stepp", "Unexpected keyword argument"),
        ({"scalars": {"clip_fraction": 31.0}}, "scalars.clip_fraction", "is not a fraction in [0, 1]"),
        ({"scalars": {"loss": None}}, "scalars.loss", "should be a valid number"),
        ({"applied": {"clip_low": -2}}, "applied.clip_low", "is not a number in [0, 1]"),
        ({"applied": {"cliplow": 0.1}}, "applied.cliplow", "Unexpected keyword argument"),
        ({"capabilities": {"controls": {"speed": "live"}}}, "capabilities.controls.speed", "no such control"),
        ({"sketches": {"update": {"edges_id": "old"}}}, "sketches.update.edges_id", "cannot be read or merged"),
        ({"sketches": {"update": {"zero": {"bins": [2, 1], "counts": [1, 1]}}}}, "sketches.update.zero.bins", "ascend"),
        ({"schema_version": 2}, "schema_version", "upgrade the older side"),
        ({"staleness": -1}, "staleness", "is negative"),
    ],
)
def test_a_malformed_summary_gets_422_naming_the_field(
    http: httpx.Client, change: dict[str, Any], field: str, message: str
) -> None:
    response = http.post("/v1/summaries", json={**GOOD, **change})
    assert response.status_code == 422
    (problem,) = response.json()["errors"]
    assert set(problem) == {"field", "value", "message"}
    assert problem["field"] == field
    assert message in problem["message"]
    assert http.get("/v1/jobs").json() == {"jobs": []}


def test_every_bad_field_is_named_at_once(http: httpx.Client) -> None:
    response = http.post("/v1/summaries", json={"job": "run", "step": "x", "rank": 1.5})
    assert [problem["field"] for problem in response.json()["errors"]] == ["attempt", "step", "rank"]


@pytest.mark.parametrize(
    "text", ["", "{", '"text"', "[]", "\x00", '{"job": "\udcff"}'.encode("utf-8", "surrogateescape")]
)
def test_what_is_not_a_record_gets_422(http: httpx.Client, text: str | bytes) -> None:
    response = http.post("/v1/summaries", content=text, headers=JSON)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "body"


def test_a_body_over_the_limit_gets_413_declared_or_not(http: httpx.Client) -> None:
    body = json.dumps({**GOOD, "refusals": ["x" * MAX_BODY]}).encode()
    chunks = (body[i : i + 65536] for i in range(0, len(body), 65536))
    for content in (body, chunks):
        response = http.post("/v1/summaries", content=content, headers=JSON)
        assert response.status_code == 413
        assert "larger than 1000000 bytes" in response.json()["errors"][0]["message"]


def test_threads_sending_the_same_key_store_it_once(url: str, service: Service) -> None:
    plant = Plant(seed=0)
    summaries = [plant.advance() for _ in range(6)]
    results: list[str] = []
    gate = threading.Barrier(6)

    def send() -> None:
        with Client(url) as client:
            gate.wait()
            results.extend(client.ingest(summary).result for summary in summaries)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (results.count("stored"), results.count("duplicate")) == (6, 30)
    assert [entry.step for entry in service.store.recorded("run").entries] == list(range(6))


def test_a_second_attempt_may_go_back_and_ranks_are_kept_apart(client: Client, service: Service) -> None:
    plant = Plant(seed=0)
    drive(client, plant, 3)
    again = replace(plant.advance(), attempt=2, step=1)
    assert client.ingest(again).result == "stored"
    assert client.ingest(replace(again, rank=1)).result == "stored"
    assert [(e.attempt, e.step, e.rank) for e in service.store.recorded("run").entries][-2:] == [(2, 1, 0), (2, 1, 1)]
    job = client.job("run")
    assert (job.attempt, job.step) == (2, 1)


def test_killed_between_requests_it_goes_on_where_it_was(db: Path) -> None:
    killed, straight = Plant(seed=4, noisy_from=8), Plant(seed=4, noisy_from=8)
    for first in (True, False):
        with serving(db) as (process, url), Client(url) as client:
            if first:
                client.register("run", mode="auto")
            drive(client, killed, 12)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(10)
    reference = Service.open(db.with_name("reference.db"))
    reference.register("run", config=None, mode=killed_mode(db), issuer="operator", reason="registered")
    for _ in range(24):
        straight.obey(reference.ingest(straight.advance()).command)
    assert killed.overrides == straight.overrides != {}
    survivor = Service.open(db).store.recorded("run")
    assert survivor.state == reference.store.recorded("run").state
    assert survivor.events == reference.store.recorded("run").events


def killed_mode(db: Path) -> Any:
    return Service.open(db).state("run").mode
