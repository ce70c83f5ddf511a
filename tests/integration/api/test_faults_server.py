"""What a server may suffer without loss: killed under load, told everything twice, in another order, a clock that
jumps."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from agent_runs import Plant
from api_runs import serving, trimtab
from long_runs import give, opened

from trimtab.api.client import Client, ClientError
from trimtab.api.server import running
from trimtab.api.service import Service, Taken
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import RUN_STATE

JOBS = ("a", "b", "c", "d")
STEPS = 40


@pytest.fixture(scope="module")
def runs() -> dict[str, list[StepSummary]]:
    """What each of four jobs reports, two of them with trouble on the way."""
    plants = [Plant(seed=i, noisy_from=10 if i % 2 else None, job=job) for i, job in enumerate(JOBS)]
    return {plant.job: [plant.advance() for _ in range(STEPS)] for plant in plants}


def undisturbed(runs: dict[str, list[StepSummary]], folder: Path) -> dict[str, str]:
    """The states that a server comes to that nothing happened to."""
    service = opened(folder / "undisturbed.db")
    for summaries in runs.values():
        give(service, summaries)
    states = states_of(service)
    service.close()
    return states


def states_of(service: Service) -> dict[str, str]:
    return {job.name: RUN_STATE.encode(service.state(job.name)) for job in service.store.jobs()}


class Load:
    """Each job reports in a thread of its own, a step after the other, until the server is gone."""

    def __init__(self, runs: dict[str, list[StepSummary]], kill_after: int) -> None:
        self.runs = runs
        self.acknowledged = dict.fromkeys(runs, 0)
        self.enough = threading.Event()
        self._kill_after = kill_after

    def against(self, url: str, job: str) -> None:
        with Client(url) as client, contextlib.suppress(ClientError, httpx.HTTPError, OSError):
            for summary in self.runs[job][self.acknowledged[job] :]:
                client.ingest(summary)
                self.acknowledged[job] += 1
                if sum(self.acknowledged.values()) >= self._kill_after:
                    self.enough.set()

    def start(self, url: str) -> list[threading.Thread]:
        threads = [threading.Thread(target=self.against, args=(url, job)) for job in self.runs]
        for thread in threads:
            thread.start()
        return threads


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_server_that_is_killed_under_load_loses_nothing_that_it_acknowledged(
    kind: str, runs: dict[str, list[StepSummary]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with contextlib.ExitStack() as stack:
        if kind == "sqlite":
            db = str(tmp_path / "agent.db")
        else:
            db = stack.enter_context(request.getfixturevalue("postgres").database())
        preset = opened(db)  # in mode auto, so that there is something to lose
        for job in runs:
            preset.register(job, config=None, mode=None, issuer="me", reason="r")
        preset.close()
        load = Load(runs, kill_after=len(JOBS) * STEPS // 2)
        with serving(db) as (process, url):
            threads = load.start(url)
            assert load.enough.wait(60)
            process.kill()
            for thread in threads:
                thread.join()
        assert not all(done == STEPS for done in load.acknowledged.values()), "it was killed on the way"
        after = opened(db)
        for job, acknowledged in load.acknowledged.items():
            rows = after.store.job(job).rows
            assert acknowledged <= rows <= acknowledged + 1, "what was on its way may have been stored"
            assert after.ingest(runs[job][acknowledged - 1]).result is Taken.DUPLICATE
        after.close()
        with serving(db) as (_, url):
            for thread in load.start(url):
                thread.join()
        assert load.acknowledged == dict.fromkeys(runs, STEPS)
        end = opened(db)
        assert {job.name: job.rows for job in end.store.jobs()} == dict.fromkeys(runs, STEPS)
        assert states_of(end) == undisturbed(runs, tmp_path)
        end.close()


def test_a_second_server_on_a_file_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path / "agent.db") as (process, url):
        second = trimtab("serve", "--db", tmp_path / "agent.db", "--port", "0", check=False)
        assert (second.returncode, second.stderr.count("error:")) == (2, 1)
        assert f"is served already by process {process.pid}" in second.stderr
        assert httpx.get(f"{url}/readyz", trust_env=False).json() == {"status": "ok"}


def swapped(summaries: Sequence[StepSummary], seed: int) -> Iterator[StepSummary]:
    """Each summary once or twice, neighbours now and then in the other order, the first two in theirs."""
    draw, order = random.Random(seed), list(summaries)
    for i in range(2, len(order) - 1, 2):
        if draw.random() < 0.5:
            order[i], order[i + 1] = order[i + 1], order[i]
    for i, summary in enumerate(order):
        yield summary
        if draw.random() < 0.5:
            yield order[draw.randrange(i + 1)]


@pytest.mark.parametrize("seed", [1, 2])
def test_summaries_that_come_twice_and_in_another_order_come_to_the_same(
    seed: int, database_url: str, runs: dict[str, list[StepSummary]], tmp_path: Path
) -> None:
    only = {job: runs[job] for job in JOBS[:2]}
    service = opened(database_url)
    with running(service) as url, Client(url) as client:
        for summaries in only.values():
            for summary in swapped(summaries, seed):
                client.ingest(summary)
    assert {job.name: job.rows for job in service.store.jobs()} == dict.fromkeys(only, STEPS)
    assert states_of(service) == undisturbed(only, tmp_path)
    service.close()


def test_a_clock_that_jumps_changes_no_state_and_breaks_no_page(
    runs: dict[str, list[StepSummary]], tmp_path: Path
) -> None:
    times = iter([1e9, 1e9 + 1, 4e9, 4e9 + 1, 0.0, -5.0, 1e9, 1e12] * 100_000)
    service = opened(tmp_path / "agent.db", clock=lambda: next(times))
    with running(service) as url, Client(url) as client, httpx.Client(base_url=url, trust_env=False) as http:
        for summary in runs["b"]:
            client.ingest(summary)
        for path in ("/v1/jobs", "/v1/jobs/b", "/v1/jobs/b/health", "/v1/jobs/b/signals", "/v1/jobs/b/events"):
            assert http.get(path).status_code == 200, path
        assert http.get("/metrics").status_code == 200
        assert http.get("/readyz").status_code == 200
    assert states_of(service) == undisturbed({"b": runs["b"]}, tmp_path)
    service.close()
