"""Requests that no honest client sends: each is refused with a reason, and hurts nobody else."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_runs import Plant

from trimtab.agent.config import AgentConfig
from trimtab.agent.state import Mode, State
from trimtab.api.app import create_app
from trimtab.api.client import Client, ClientError
from trimtab.api.health_view import health_view, job_view
from trimtab.api.metrics.jobs import MAX_JOBS
from trimtab.api.service import Service
from trimtab.storage.database import Database
from trimtab.storage.store import ConflictError

GOOD = {"job": "run", "attempt": 1, "step": 0}
HALF = "\ud800"
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "change",
    [
        {"job": HALF},
        {"refusals": [HALF]},
        {"scalars": {HALF: 1.0}},
        {"nonfinite": {HALF: {"nan": 1}}},
        {"applied": {"sampler_format": HALF}},
        {"applied": {HALF: 1}},
        {"overrides": {HALF: 1}},
        {HALF * 3: 1, "step": "no"},
    ],
)
def test_half_of_a_surrogate_pair_is_no_text(http: httpx.Client, change: dict[str, Any]) -> None:
    response = http.post("/v1/summaries", content=json.dumps({**GOOD, **change}), headers=JSON)
    assert response.status_code == 422
    assert response.json()["errors"]
    assert http.get("/v1/jobs").json()["jobs"] == []


def test_what_people_type_is_text_too(client: Client, http: httpx.Client) -> None:
    client.register("run")
    for method, path, body in (
        ("PUT", "/v1/jobs/run", {"config": {HALF: 1}}),
        ("PUT", "/v1/jobs/run/mode", {"mode": "auto", "reason": HALF}),
        ("PATCH", "/v1/jobs/run/controls", {"overrides": {HALF: 1}, "reason": "r"}),
        ("PATCH", "/v1/jobs/run/controls", {"overrides": {"centering": HALF}, "reason": "r"}),
        ("PATCH", "/v1/jobs/run/controls", {"overrides": {"centering": True}, "reason": "r", "issuer": HALF}),
    ):
        response = http.request(method, path, content=json.dumps(body), headers=JSON)
        assert response.status_code == 422, body
        assert response.json()["errors"], body


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"[" * 200_000, "not JSON: recursion limit exceeded at line 1 column 202"),
        (b'{"step": ' + b"1" * 5000 + b"}", "not JSON: number out of range at line 1 column 4311"),
        (b"\xff", "not JSON: expected value at line 1 column 1"),
    ],
)
def test_a_body_that_cannot_be_parsed_is_told_why(http: httpx.Client, body: bytes, told: str) -> None:
    response = http.post("/v1/summaries", content=body, headers=JSON)
    assert response.status_code == 422
    assert response.json()["errors"][0]["message"] == told


def test_numbers_beyond_the_database_are_refused(client: Client, http: httpx.Client) -> None:
    client.register("run")
    for path in ("events?cursor=9223372036854775808", "signals?attempt=99999999999999999999"):
        assert http.get(f"/v1/jobs/run/{path}").status_code == 422
    decision = http.post(f"/v1/jobs/run/proposals/{2**64}/approve", json={"reason": "r"})
    assert decision.status_code == 422


@pytest.mark.parametrize("headers", [{"Host": "[::1"}, {"Origin": "http://["}])
def test_a_malformed_address_is_a_foreign_one(http: httpx.Client, headers: dict[str, str]) -> None:
    assert http.put("/v1/jobs/run", json={}, headers=headers).status_code == 403


def test_an_error_names_its_field_once(client: Client, http: httpx.Client) -> None:
    config = {"detectors": {"mismatch": {"std_limit": -1.0}}}
    (problem,) = http.put("/v1/jobs/run", json={"config": config}).json()["errors"]
    assert (problem["field"], problem["value"]) == ("config.detectors.mismatch.std_limit", -1.0)
    client.register("run")
    change = {"overrides": {"clip_low": [0.1]}, "reason": "r"}
    (problem,) = http.patch("/v1/jobs/run/controls", json=change).json()["errors"]
    assert (problem["field"], problem["message"]) == ("overrides.clip_low", "should be a boolean, a number or a string")


def test_nobody_decides_in_the_name_of_the_agent(client: Client) -> None:
    client.register("run")
    with pytest.raises(ClientError, match="issuer: is the agent itself") as caught:
        client.patch_controls("run", {"centering": True}, reason="r", issuer=" Agent")
    assert caught.value.status == 422


def test_a_scalar_cannot_pose_as_a_signal(client: Client) -> None:
    client.ingest(replace(Plant(seed=0).advance(), sketches={}, scalars={"mismatch_std": 9.0, "mine": 1.0}))
    names = client.signals("run").names
    assert "mine" in names
    assert "mismatch_std" not in names


def test_settings_that_were_accepted_stay(db: Path) -> None:
    service = Service.open(db)
    wanted = AgentConfig(window=7)
    for number in range(20):
        gate = threading.Barrier(2)

        def put(config: AgentConfig | None, job: str = f"run{number}", gate: threading.Barrier = gate) -> None:
            gate.wait()
            service.register(job, config=config, mode=None, issuer="me", reason="r")

        threads = [threading.Thread(target=put, args=(config,)) for config in (wanted, None)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {json.loads(job.config)["window"] for job in service.store.jobs()} == {7}
    service.close()


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def on(db: Path) -> tuple[Service, Clock]:
    clock = Clock()
    service = Service(Database(db), clock=clock)
    service.store.database.migrate()
    return service, clock


def report(service: Service, clock: Clock, plant: Plant, steps: int, every: float) -> None:
    for _ in range(steps):
        clock.now += every
        plant.obey(service.ingest(plant.advance()).command)


def test_a_silent_job_is_not_green_and_strays_do_not_refresh_it(db: Path) -> None:
    service, clock = on(db)
    plant = Plant(seed=0)
    report(service, clock, plant, 24, every=60.0)
    assert (job_view(service, "run").state, job_view(service, "run").age) == (State.OK, 0.0)
    last, clock.now = clock.now, clock.now + 20 * 60
    assert not job_view(service, "run").silent
    clock.now += 1
    stray = plant.advance()
    service.ingest(replace(stray, attempt=stray.attempt - 1))
    service.ingest(replace(stray, rank=1))
    line = job_view(service, "run")
    assert (line.state, line.silent, line.age, line.last_received_at) == (State.NOT_OBSERVED, True, 1201.0, last)
    service.ingest(stray)
    assert job_view(service, "run").state is State.OK
    service.close()


def test_a_job_whose_summaries_go_to_quarantine_is_not_green(db: Path) -> None:
    service, clock = on(db)
    plant = Plant(seed=0)
    report(service, clock, plant, 24, every=1.0)
    with pytest.raises(ConflictError):
        service.ingest(replace(Plant(seed=0).advance(), scalars={"loss": 9.0}))
    line = health_view(service, "run").job
    assert (line.state, line.quarantined) == (State.INCONCLUSIVE, 1)
    report(service, clock, plant, 4, every=200.0)
    line = job_view(service, "run")
    assert (line.state, line.quarantined) == (State.OK, 1)
    service.close()


def test_metrics_choose_the_jobs_that_report(db: Path) -> None:
    service, _ = on(db)
    service.ingest(Plant(seed=0, job="old-timer").advance())
    for number in range(MAX_JOBS):
        service.register(f"idle{number}", config=None, mode=Mode.OBSERVE, issuer="me", reason="r")
    assert b'trimtab_step{job="old-timer"}' in create_app(service).state.metrics.exposition()
    service.close()


def test_a_summary_that_the_service_fails_on_is_counted(db: Path) -> None:
    service, _ = on(db)
    service.ingest(Plant(seed=0).advance())
    metrics = create_app(service).state.metrics
    with pytest.raises(ZeroDivisionError), metrics.ingest():
        raise ZeroDivisionError
    assert b'trimtab_ingest_rows_total{result="failed"} 1.0' in metrics.exposition()
    service.close()
