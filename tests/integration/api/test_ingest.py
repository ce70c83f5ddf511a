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
from trimtab.hooks.records import StepSummary
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
    second = '{"scalars": {"grad_norm": "NaN", "loss": 1.0}, "step": 0, "attempt": 1, "job": "run", "rank": 0}'
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
    assert client.health("run").job.quarantined == 1
    assert service.store.recorded("run").entries[0].payload == SUMMARY.encode(summary)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"step": "many"}, "step", "should be a valid integer"),
        ({"step": -1}, "step", "-1 is negative"),
        ({"job": "a b"}, "job", "must be 1 to 128 letters"),
        ({"attempt": 2**60}, "attempt", "not below 2^53"),
        ({"generation": 10**400}, "generation", "not below 2^53"),
        ({"dropped_total": 2**53}, "dropped_total", "not below 2^53"),
        ({"policy_version": -(2**53)}, "policy_version", ""),
        ({"negative": {"tokens": 2**53}}, "negative.tokens", "not below 2^53"),
        ({"scalars": {"clip_fraction": 31.0}}, "scalars.clip_fraction", "is not a fraction in [0, 1]"),
        ({"scalars": {"loss": None}}, "scalars.loss", "should be a valid number"),
        ({"applied": {"clip_low": -2}}, "applied.clip_low", "is not a number in [0, 1]"),
        ({"applied": {"cliplow": 0.1}}, "applied.cliplow", "no such control; did you mean clip_low"),
        ({"applied": 7}, "applied", "should be an object"),
        ({"overrides": {"cliplow": 0.1}}, "overrides.cliplow", "no such control; did you mean clip_low"),
        ({"overrides": {"clip_low": 2}}, "overrides.clip_low", "is not a number in [0, 1]"),
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
    assert http.get("/v1/jobs").json()["jobs"] == []


ONE_SKETCH = {"bins": [600, 609], "counts": [3, 61], "sums": [-0.2, 0.01, 63.8, 63.6, 0.01]}


def test_what_a_newer_hook_adds_is_ignored_at_any_depth(http: httpx.Client, service: Service) -> None:
    newer = {
        **GOOD,
        "mood": "fine",
        "negative": {"tokens": 3, "colour": "red"},
        "sketches": {"update": {"zero": {**ONE_SKETCH, "weights": [1]}, "kind": 2}},
        "capabilities": {"controls": {"centering": "live"}, "telepathy": True},
    }
    response = http.post("/v1/summaries", json=newer)
    assert (response.status_code, response.json()["result"]) == (200, "stored")
    summary = SUMMARY.decode(service.store.recorded("run").entries[0].payload)
    assert (summary.negative.tokens, summary.sketches["update"].zero.counts) == (3, (3, 61))
    assert http.post("/v1/summaries", json={**newer, "mood": "worse"}).json()["result"] == "duplicate"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/controls", {"overrides": {"centering": True}, "reason": "r", "resaon": "r"}),
        ("PUT", "/mode", {"mode": "auto", "reason": "r", "resaon": "r"}),
        ("PUT", "", {"mode": "auto", "resaon": "r"}),
    ],
)
def test_what_people_type_keeps_unknown_keys_out(
    client: Client, http: httpx.Client, method: str, path: str, body: dict[str, Any]
) -> None:
    drive(client, Plant(seed=0), 1)
    response = http.request(method, f"/v1/jobs/run{path}", json=body)
    assert response.status_code == 422
    assert [problem["field"] for problem in response.json()["errors"]] == ["resaon"]


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
    assert client.ingest(replace(again, rank=1)).result == "ignored"
    assert [(e.attempt, e.step, e.rank) for e in service.store.recorded("run").entries][-2:] == [(2, 1, 0), (2, 1, 1)]
    job = client.job("run")
    assert (job.attempt, job.step) == (2, 1)


def test_a_late_summary_of_an_older_attempt_is_kept_and_told_to_be_ignored(client: Client) -> None:
    plant = Plant(seed=0)
    late = plant.advance()
    drive(client, replace(plant, attempt=2), 2)
    before = client.job("run")
    answer = client.ingest(late)
    assert (answer.result, answer.command) == ("ignored", None)
    assert answer.reason == "attempt 1: attempt 2 is newer, and only the newest is judged"
    assert client.ingest(late).result == "duplicate"
    after = client.job("run")
    assert (after.attempt, after.step, after.rows) == (2, before.step, before.rows + 1)


def test_a_batch_is_answered_with_what_its_newest_judged_summary_would_be(client: Client, http: httpx.Client) -> None:
    plant = Plant(seed=0, attempt=2)
    drive(client, plant, 3)

    def told(*summaries: StepSummary) -> int | None:
        body = f"[{','.join(map(SUMMARY.encode, summaries))}]"
        response = http.post("/v1/summaries/batch", content=body, headers={"content-type": "application/json"})
        assert [one["errors"] for one in response.json()["results"]] == [[]] * len(summaries)
        command = response.json()["commands"][plant.job]
        return None if command is None else int(command["generation"])

    client.patch_controls(plant.job, {"clip_low": 0.1}, reason="try")
    step = plant.advance()
    assert told(replace(step, rank=1)) is None, "as it would be told alone"
    assert told(step, replace(step, rank=2), replace(step, attempt=1)) == 1
    assert told(replace(step, attempt=1, step=99), plant.advance()) == 1
    assert told(step) == 1, "it was sent before"
    pending = plant.advance()
    plant.obey(client.ingest(plant.advance()).command)
    assert told(pending, plant.advance(), replace(step, rank=3)) is None, "the trainer has caught up"
    client.kill(plant.job, reason="hands off")
    step = plant.advance()
    assert told(step, replace(step, rank=1)) == 2


def test_a_job_of_which_only_another_rank_has_reported_has_no_step(client: Client, http: httpx.Client) -> None:
    summary = Plant(seed=0).advance()
    client.ingest(replace(summary, rank=1, scalars={"reward_mean": 0.1}))
    job = client.job("run")
    assert (job.attempt, job.step, job.state, job.last_received_at, job.rows) == (None, None, "not_observed", None, 1)
    assert "trimtab_step{" not in http.get("/metrics").text
    client.ingest(replace(summary, scalars={"reward_mean": 0.9}))
    client.ingest(replace(summary, rank=2, scalars={"reward_mean": 0.2}))
    job = client.job("run")
    assert (job.attempt, job.step, job.rows) == (1, 0, 3)
    assert client.signals("run", ["reward_mean"]).series[0].values == [0.9]


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
    survivor = Service.open(db)
    assert survivor.state("run") == reference.state("run")
    assert survivor.store.recorded("run").events == reference.store.recorded("run").events


def killed_mode(db: Path) -> Any:
    return Service.open(db).state("run").mode
