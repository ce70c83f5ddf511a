"""What is read back: jobs, health, incidents, events, signals."""

import math
from dataclasses import replace

import httpx
import pytest
from agent_runs import Plant, step_summary
from api_runs import drive

from trimtab.api.client import Client, ClientError
from trimtab.api.routes.signals import MAX_NAMES
from trimtab.api.service import Service


@pytest.fixture
def collapsed(client: Client) -> Plant:
    """A run that fails unattended from step 10 on."""
    plant = Plant(seed=1, noisy_from=10)
    drive(client, plant, 24)
    return plant


def test_a_job_is_registered_once_with_its_settings(client: Client) -> None:
    first = client.register("run", config={"window": 7}, mode="advise")
    assert (first.mode, first.state, first.step, first.rows) == ("advise", "not_observed", None, 1)
    assert client.register("run", config={"window": 7}, mode="advise") == first
    assert client.register("run") == first
    with pytest.raises(ClientError, match="config: job 'run' has a ledger") as caught:
        client.register("run", config={"window": 8})
    assert caught.value.status == 409


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"windov": 1}, "config.windov"),
        ({"window": 1}, "config.window"),
        ({"detectors": {"x": {}}}, "config.detectors.x"),
    ],
)
def test_bad_settings_get_422_naming_the_field(client: Client, config: dict[str, object], field: str) -> None:
    with pytest.raises(ClientError) as caught:
        client.register("run", config=config)
    assert caught.value.status == 422
    assert [problem.field for problem in caught.value.problems] == [field]
    assert client.jobs() == []


def test_a_name_that_cannot_name_a_job_gets_422(client: Client) -> None:
    with pytest.raises(ClientError, match="job: 'a b' must be 1 to 128 letters"):
        client.register("a b")


def test_health_of_a_run_that_fails(client: Client, collapsed: Plant) -> None:
    health = client.health(collapsed.job)
    states = {verdict.detector: verdict.state for verdict in health.verdicts}
    assert health.job.state == "critical"
    assert states["mismatch"] == "critical"
    assert "mismatch" in {incident.detector for incident in health.incidents}
    assert health.job.firing == len([one for one in health.incidents if one.phase == "firing"])
    assert client.incidents(collapsed.job)[-1].since_step >= 10
    assert [job.model_copy(update={"age": None}) for job in client.jobs()] == [
        health.job.model_copy(update={"age": None})
    ]


def test_a_healthy_run_has_no_incident(client: Client) -> None:
    drive(client, Plant(seed=0), 20)
    assert client.incidents("run") == []
    assert {verdict.state.value for verdict in client.health("run").verdicts} <= {"ok", "inconclusive", "not_observed"}


def test_a_run_that_reports_nothing_is_grey(client: Client) -> None:
    client.register("run")
    assert client.health("run").job.state == "not_observed"


def test_incidents_are_filtered_by_phase(http: httpx.Client, collapsed: Plant) -> None:
    firing = http.get(f"/v1/jobs/{collapsed.job}/incidents", params={"phase": "firing"}).json()["incidents"]
    resolved = http.get(f"/v1/jobs/{collapsed.job}/incidents", params={"phase": "resolved"}).json()["incidents"]
    assert {incident["phase"] for incident in firing} == {"firing"}
    assert resolved == []


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_pages_of_events_join_without_gap_or_repeat(http: httpx.Client, client: Client, limit: int) -> None:
    client.register("run", mode="auto")
    drive(client, Plant(seed=1, noisy_from=0), 12)
    found, cursor = [], "0"
    while cursor is not None:
        page = http.get("/v1/jobs/run/events", params={"cursor": cursor, "limit": limit}).json()
        assert len(page["events"]) <= limit
        found += page["events"]
        cursor = page["next"]
    assert [event["number"] for event in found] == list(range(1, len(found) + 1))
    assert len(found) > 3
    assert [event.number for event in client.events("run")] == [event["number"] for event in found]
    assert [event["seq"] for event in found] == sorted(event["seq"] for event in found)


def test_events_name_the_row_that_caused_them(client: Client, service: Service, collapsed: Plant) -> None:
    entries = {entry.seq: entry for entry in service.store.recorded(collapsed.job).entries}
    for event in client.events(collapsed.job):
        assert (entries[event.seq].attempt, entries[event.seq].step) == (event.attempt, event.step)


def test_signals_by_name_attempt_and_points(client: Client, collapsed: Plant) -> None:
    found = client.signals(collapsed.job, ["reward_mean", "unheard_of"])
    reward, unknown = found.series
    assert (found.attempt, found.attempts) == (1, [1])
    assert reward.steps == list(range(24))
    assert reward.values[-1] == pytest.approx(collapsed.reward, abs=0.2)
    assert (unknown.steps, unknown.values, unknown.kinds) == ([], [], [])
    assert {"reward_mean", "entropy", "update_q05_negative", "loss"} <= set(found.names)
    assert len(client.signals(collapsed.job).series) == len(found.names)
    (thin,) = client.signals(collapsed.job, ["reward_mean"], points=8).series
    assert len(thin.steps) <= 8
    client.ingest(replace(collapsed.advance(), attempt=2))
    assert client.signals(collapsed.job, ["reward_mean"]).attempts == [1, 2]
    assert client.signals(collapsed.job, ["reward_mean"], attempt=1).series[0].steps == list(range(24))


def test_non_finite_signals_are_null_with_their_kind(client: Client, http: httpx.Client) -> None:
    plant = Plant(seed=0)
    for loss in (0.5, math.nan, math.inf, -math.inf):
        summary = plant.advance()
        client.ingest(replace(summary, scalars={**summary.scalars, "loss": loss}))
    response = http.get("/v1/jobs/run/signals", params={"name": "loss"})
    assert response.json()["series"] == [
        {
            "name": "loss",
            "steps": [0, 1, 2, 3],
            "values": [0.5, None, None, None],
            "kinds": ["finite", "nan", "+inf", "-inf"],
            "censored": None,
        }
    ]


def test_no_answer_holds_a_bare_nan(client: Client, http: httpx.Client) -> None:
    plant = Plant(seed=0)
    for _ in range(12):
        summary = plant.advance()
        broken = dict.fromkeys(("loss", "grad_norm", "reward_mean", "garbage_fraction"), math.nan)
        client.ingest(replace(summary, scalars=broken))
    for path in ("", "/run", "/run/health", "/run/incidents", "/run/events", "/run/signals", "/run/controls"):
        response = http.get(f"/v1/jobs{path}")
        assert response.status_code == 200
        for bare in (":NaN", ":Infinity", ":-Infinity", "[NaN", ",NaN"):
            assert bare not in response.text, (path, bare)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("signals?points=1", "points"),
        ("signals?attempt=x", "attempt"),
        ("events?limit=0", "limit"),
        ("events?kind=party", "kind.0"),
        ("incidents?phase=gone", "phase.0"),
        ("events?cursor=2147483648", "cursor"),
        ("events.jsonl?cursor=2147483648", "cursor"),
        ("../../jobs?cursor=2147483648", "cursor"),
        ("../../webhooks/nothing/deliveries?cursor=2147483648", "cursor"),
        ("attempts?cursor=9007199254740992", "cursor"),
        ("signals?" + "&".join(["name=x"] * 201), "name"),
    ],
)
def test_bad_parameters_get_422(http: httpx.Client, client: Client, path: str, field: str) -> None:
    client.register("run")
    response = http.get(f"/v1/jobs/run/{path}")
    assert response.status_code == 422
    assert [problem["field"] for problem in response.json()["errors"]] == [field]


@pytest.mark.parametrize(
    "path", ["events?cursor=2147483647", "../../jobs?cursor=2147483647", "attempts?cursor=9007199254740991"]
)
def test_the_largest_cursors_that_there_can_be_are_taken(http: httpx.Client, client: Client, path: str) -> None:
    client.register("run")
    assert http.get(f"/v1/jobs/run/{path}").status_code == 200


def test_where_there_are_too_many_signals_the_programs_own_come_first(http: httpx.Client, client: Client) -> None:
    client.ingest(step_summary(0, scalars={f"a_{i:03}": 1.0 for i in range(300)}))
    answer = http.get("/v1/jobs/run/signals").json()
    told = [one["name"] for one in answer["series"]]
    own = [name for name in answer["names"] if not name.startswith("a_")]
    assert len(answer["names"]) == len(own) + 300
    assert told == [*(f"a_{i:03}" for i in range(MAX_NAMES - len(own))), *own]
