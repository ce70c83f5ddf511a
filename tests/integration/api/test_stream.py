"""Live: what is stored is told, by whichever process, and nothing twice."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_runs import Plant, step_summary
from api_runs import drive

from trimtab.api.client import Client
from trimtab.api.hub import MOST_WATCHERS
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.storage.database import Database


class Stream:
    """The messages of one stream, one after another."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self._lines = response.iter_lines()

    def next(self) -> dict[str, Any]:
        """The next message; comments are passed over."""
        found: dict[str, Any] = {}
        for line in self._lines:
            name, _, value = line.partition(":")
            if name:
                found[name] = value.strip()
            elif found:
                return {**found, "data": json.loads(found["data"])}
        raise EOFError

    def until(self, kind: str) -> list[dict[str, Any]]:
        """Messages up to the first of a kind, which is the last."""
        found = [self.next()]
        while found[-1]["event"] != kind:
            found.append(self.next())
        return found


@contextmanager
def watching(url: str, job: str | None = None, last: int | None = None) -> Iterator[Stream]:
    """A stream that is ready."""
    params = {} if job is None else {"job": job}
    headers = {} if last is None else {"last-event-id": str(last)}
    with (
        httpx.Client(base_url=url, trust_env=False, timeout=30) as http,
        http.stream("GET", "/v1/stream", params=params, headers=headers) as response,
    ):
        stream = Stream(response)
        assert response.headers["content-type"].startswith("text/event-stream")
        ready = stream.next()
        assert (ready["event"], ready["data"]) == ("ready", {"job": job})
        yield stream


def test_a_new_job_its_steps_and_its_events_are_told(client: Client, url: str) -> None:
    client.register("before")
    with watching(url) as stream:
        client.ingest(step_summary(0))
        told = stream.until("event")
        assert [one["event"] for one in told] == ["job", "summary", "event"]
        assert told[0]["data"] == {"job": "run", "archived": False}
        assert told[1]["data"] == {"job": "run", "attempt": 1, "step": 0}
        event = told[2]["data"]
        assert (event["job"], event["number"], event["kind"]) == ("run", 1, "attempt_started")
        assert "id" not in told[2]
        client.archive("before", reason="it is done")
        assert stream.until("job")[-1]["data"] == {"job": "before", "archived": True}


def test_one_job_alone_is_told_of_where_one_is_named(client: Client, url: str) -> None:
    client.register("mine")
    with watching(url, "mine") as stream:
        client.ingest(step_summary(0, job="other"))
        client.ingest(step_summary(0, job="mine"))
        told = stream.until("event")
        assert {one["data"]["job"] for one in told} == {"mine"}
        assert told[-1]["id"] == "1"


def test_whoever_comes_back_gets_every_event_that_was_missed_once(client: Client, url: str) -> None:
    client.register("run", mode="auto")
    plant = Plant(seed=1, noisy_from=0)
    drive(client, plant, 6)
    with watching(url, "run", last=0) as stream:
        known = list(client.events("run"))
        first = [stream.next() for _ in known]
    assert [one["data"]["number"] for one in first] == [event.number for event in known]
    assert [one["data"]["message"] for one in first] == [event.message for event in known]
    drive(client, plant, 6)
    with watching(url, "run", last=int(first[-1]["id"])) as stream:
        drive(client, plant, 30)
        missed = len(list(client.events("run"))) - len(known)
        rest = [stream.next() for _ in range(missed)]
        while any(one["event"] != "event" for one in rest):
            rest = [one for one in rest if one["event"] == "event"]
            rest += [stream.next() for _ in range(missed - len(rest))]
    numbers = [int(one["id"]) for one in (*first, *rest)]
    assert numbers == [event.number for event in client.events("run")]


def test_a_watcher_hears_of_what_another_process_stored(database_url: str) -> None:
    database = Database(database_url)
    database.migrate()
    here, there = Service(database), Service(Database(database_url))
    with running(here) as url, watching(url) as stream:
        there.ingest(step_summary(0))
        assert [one["event"] for one in stream.until("event")] == ["job", "summary", "event"]
    there.close()
    here.close()


def test_a_service_that_ends_sends_its_watchers_away(tmp_path: Path) -> None:
    service = Service.open(tmp_path / "agent.db")
    with running(service) as url:
        entered = watching(url)
        stream = entered.__enter__()
    with pytest.raises(EOFError):  # well before its readers would have given up
        stream.next()
    entered.__exit__(None, None, None)
    service.close()


def test_there_is_a_limit_to_how_many_watch(url: str, http: httpx.Client) -> None:
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=url, trust_env=False, timeout=60, limits=limits) as crowd:
        opened = []
        try:
            for _ in range(MOST_WATCHERS):
                response = crowd.send(crowd.build_request("GET", "/v1/stream"), stream=True)
                assert response.status_code == 200
                opened.append(response)
            refused = http.get("/v1/stream")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
            assert f"trimtab_stream_watchers {MOST_WATCHERS}.0" in http.get("/metrics").text
        finally:
            for response in opened:
                response.close()


@pytest.mark.parametrize(
    ("params", "headers", "status"),
    [
        ({"job": "nope"}, {}, 404),
        ({"job": "x" * 1000}, {}, 422),
        ({"job": "run"}, {"last-event-id": "x"}, 422),
        ({"job": "run"}, {"last-event-id": "9" * 30}, 422),
    ],
)
def test_what_cannot_be_watched_is_refused(
    client: Client, http: httpx.Client, params: dict[str, str], headers: dict[str, str], status: int
) -> None:
    client.register("run")
    assert http.get("/v1/stream", params=params, headers=headers).status_code == status


def test_the_page_may_be_open_in_many_tabs_while_a_run_reports(client: Client, url: str) -> None:
    told: list[list[int]] = []

    def tab() -> None:
        with watching(url, "run") as stream:
            ready.release()
            numbers = []
            while not numbers or numbers[-1] < 20:
                message = stream.next()
                if message["event"] == "summary":
                    numbers.append(message["data"]["step"])
            told.append(numbers)

    ready = threading.Semaphore(0)
    client.register("run")
    tabs = [threading.Thread(target=tab) for _ in range(8)]
    for one in tabs:
        one.start()
    for _ in tabs:
        ready.acquire()
    for step in range(21):
        client.ingest(step_summary(step))
    for one in tabs:
        one.join(60)
    assert len(told) == 8
    assert all(numbers == sorted(set(numbers)) and numbers[-1] == 20 for numbers in told)


def test_an_id_that_no_event_can_have_is_ignored(client: Client, url: str) -> None:
    client.register("run")
    with watching(url, "run", last=2**31) as stream:
        client.ingest(step_summary(0))
        assert stream.until("event")[-1]["id"] == "1"
