"""Jobs by the page, what is said of each, and those that are put away."""

import json
from dataclasses import replace

import httpx
import pytest
from agent_runs import Plant, step_summary
from api_runs import drive
from sqlalchemy import event

from trimtab.api.client import Client, ClientError
from trimtab.api.health_view import job_views, overview
from trimtab.api.service import Service
from trimtab.storage.audit import Audit


def names(page: dict[str, object]) -> list[str]:
    jobs = page["jobs"]
    assert isinstance(jobs, list)
    return [job["name"] for job in jobs]


def queries_of(service: Service) -> list[str]:
    """Grows with every query from here on."""
    seen: list[str] = []

    def listen(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(("SELECT", "WITH")):
            seen.append(statement)

    event.listen(service.database.engine, "before_cursor_execute", listen)
    return seen


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_pages_of_jobs_join_without_gap_or_repeat(http: httpx.Client, client: Client, limit: int) -> None:
    for number in range(5):
        client.register(f"run-{number}", mode="auto" if number % 2 else "observe")
    for params, expected in (
        ({}, ["run-4", "run-3", "run-2", "run-1", "run-0"]),
        ({"mode": "auto"}, ["run-3", "run-1"]),
        ({"query": "RUN-2"}, ["run-2"]),
        ({"state": "ok"}, []),
    ):
        found, asked = [], {"limit": limit, **params}
        while True:
            page = http.get("/v1/jobs", params=asked).json()
            assert len(page["jobs"]) <= limit
            found += names(page)
            if page["next"] is None:
                break
            asked["cursor"] = page["next"]
        assert found == expected


def test_a_page_goes_on_where_it_ended_though_jobs_were_added_meanwhile(http: httpx.Client, client: Client) -> None:
    for name in ("a", "b"):
        client.register(name)
    page = http.get("/v1/jobs", params={"limit": 1}).json()
    client.register("c")
    assert names(page) == ["b"]
    assert names(http.get("/v1/jobs", params={"cursor": page["next"]}).json()) == ["a"]


@pytest.mark.parametrize(
    "params",
    [{"cursor": "x"}, {"cursor": "-1"}, {"cursor": "9" * 17}, {"limit": 0}, {"limit": 1001}, {"state": "fine"}],
)
def test_what_is_no_page_gets_422(http: httpx.Client, params: dict[str, str]) -> None:
    response = http.get("/v1/jobs", params=params)
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [*params] or "state" in params


def test_jobs_are_found_by_their_state(client: Client) -> None:
    drive(client, Plant(seed=0, noisy_from=0), 12)
    drive(client, Plant(seed=1, job="well"), 40)
    assert [job.name for job in client.jobs(states=["critical"])] == ["run"]
    assert [job.name for job in client.jobs(states=["critical", "ok"])] == ["well", "run"]


def test_a_line_names_the_worst_detector_and_the_latest_rewards(client: Client) -> None:
    plant = Plant(seed=0, noisy_from=0)
    drive(client, plant, 12)
    line = client.job("run")
    assert line.worst is not None
    assert (line.worst.detector, line.worst.state) == ("mismatch", "critical")
    assert line.worst.message.startswith("mismatch std ")
    assert len(line.reward) == 12
    [series] = client.signals("run", ["reward_mean"]).series
    assert line.reward == series.values
    client.ingest(replace(step_summary(0, job="odd"), scalars={"reward_mean": float("nan")}))
    assert client.job("odd").reward == [None]


def test_many_jobs_take_no_more_queries_than_one(service: Service) -> None:
    for number in range(30):
        for step in range(3):
            service.ingest(step_summary(step, job=f"run-{number}"))
    statements = queries_of(service)
    views = job_views(service, overview(service).lines())
    assert [view.step for view in views] == [2] * 30
    assert len(statements) == 3


def test_a_state_that_is_not_at_hand_is_read_once(service: Service) -> None:
    for number in range(5):
        service.ingest(step_summary(0, job=f"run-{number}"))
    again = Service(service.database)
    before = job_views(service, overview(service).lines())
    assert [view.step for view in job_views(again, overview(again).lines())] == [view.step for view in before]
    statements = queries_of(service)
    job_views(again, overview(again).lines())
    assert len(statements) == 3


def test_an_archived_job_leaves_the_list_and_comes_back_with_its_next_summary(
    client: Client, service: Service, http: httpx.Client
) -> None:
    plant = Plant(seed=0)
    drive(client, plant, 3)
    assert client.archive("run", reason="it is done", issuer="ada").archived_at is not None
    assert client.archive("run", reason="twice").archived_at is not None
    assert client.jobs() == []
    assert [job.name for job in client.jobs(archived=True)] == ["run"]
    assert client.job("run").step == 2
    assert 'job="run"' not in http.get("/metrics").text
    drive(client, plant, 1)
    assert [(job.name, job.archived_at) for job in client.jobs()] == [("run", None)]
    client.archive("run", reason="done again")
    assert client.unarchive("run", reason="one more look").archived_at is None
    links = [link for link in Audit(service.database).page(limit=100) if "archive" in link.action]
    assert [(link.action, link.actor, link.reason, json.loads(link.detail)) for link in links] == [
        ("archive", "local", "it is done", {"issuer": "ada"}),
        ("unarchive", "agent", "it reports again", {}),
        ("archive", "local", "done again", {"issuer": "operator"}),
        ("unarchive", "local", "one more look", {"issuer": "operator"}),
    ]


def test_archiving_takes_a_reason(http: httpx.Client, client: Client) -> None:
    client.register("run")
    for what in ("archive", "unarchive"):
        response = http.post(f"/v1/jobs/run/{what}", json={})
        assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "reason")
    with pytest.raises(ClientError, match="there is no job 'nope'"):
        client.archive("nope", reason="r")


def test_attempts_are_told_with_their_ends(client: Client, http: httpx.Client) -> None:
    for attempt, steps in ((1, (0, 1, 2)), (5, (2, 3))):
        for step in steps:
            client.ingest(step_summary(step, attempt=attempt))
    newest, first = client.attempts("run")
    assert (newest.attempt, newest.summaries, newest.first_step, newest.last_step) == (5, 2, 2, 3)
    assert (first.attempt, first.summaries, first.first_step, first.last_step) == (1, 3, 0, 2)
    assert first.first_received_at <= first.last_received_at <= newest.first_received_at
    page = http.get("/v1/jobs/run/attempts", params={"limit": 1}).json()
    assert ([one["attempt"] for one in page["attempts"]], page["next"]) == ([5], "5")
    rest = http.get("/v1/jobs/run/attempts", params={"limit": 1, "cursor": "5"}).json()
    assert ([one["attempt"] for one in rest["attempts"]], rest["next"]) == ([1], None)


def test_the_trail_is_exported_as_lines_in_one_answer(http: httpx.Client, client: Client) -> None:
    client.register("run", mode="auto")
    drive(client, Plant(seed=1, noisy_from=0), 12)
    response = http.get("/v1/jobs/run/events.jsonl")
    assert response.headers["content-type"] == "application/jsonl"
    events = http.get("/v1/jobs/run/events", params={"limit": 1000}).json()["events"]
    assert [json.loads(line) for line in response.text.splitlines()] == events
    some = http.get("/v1/jobs/run/events.jsonl", params={"cursor": "2", "kind": "proposed"}).text.splitlines()
    assert [json.loads(line) for line in some] == [
        one for one in events if one["number"] > 2 and one["kind"] == "proposed"
    ]
