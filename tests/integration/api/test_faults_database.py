"""A database that goes away under the service, and two replicas on one database."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from agent_runs import Plant
from api_runs import serving
from long_runs import give, opened
from postgres import PostgresServer
from sqlalchemy import select
from sqlalchemy.exc import TimeoutError as PoolTimeout

from trimtab.agent.run_state import RunState
from trimtab.api.client import Client
from trimtab.api.server import running
from trimtab.hooks.layout import Report
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.backoff import Backoff
from trimtab.hooks.transport.http import HttpTransport
from trimtab.storage import queries
from trimtab.storage.codec import RUN_STATE, SUMMARY
from trimtab.storage.tables import JobRow

STEPS = 60
FAST = Backoff(first=0.05, cap=0.2)
GONE_S = 30
"""For which the database is gone: longer than any single wait in the service, connections and probes included."""


@pytest.fixture(scope="module")
def summaries() -> list[StepSummary]:
    plant = Plant(seed=1, noisy_from=10)
    return [plant.advance() for _ in range(STEPS)]


@pytest.fixture(scope="module")
def undisturbed(summaries: list[StepSummary], tmp_path_factory: pytest.TempPathFactory) -> RunState:
    service = opened(tmp_path_factory.mktemp("undisturbed") / "agent.db")
    give(service, summaries)
    state = service.state("run")
    service.close()
    return state


def eventually(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up, "it never came to hold"
        time.sleep(0.02)


def test_while_the_database_is_gone_trainers_keep_their_summaries_and_deliver_them_after(
    postgres: PostgresServer, summaries: list[StepSummary], undisturbed: RunState, tmp_path: Path
) -> None:
    with postgres.database() as db:
        service = opened(db)
        with running(service) as url, httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
            transport = HttpTransport(url, spool=tmp_path / "spool", backoff=FAST)
            for summary in summaries[:20]:
                transport.send(Report(summary))
            eventually(lambda: [job.rows for job in service.store.jobs()] == [20])
            postgres.stop()
            try:
                back = time.monotonic() + GONE_S
                for summary in summaries[20:50]:
                    transport.send(Report(summary))
                    time.sleep(GONE_S / 30)
                assert time.monotonic() >= back
                eventually(lambda: http.get("/readyz").status_code == 503)
                assert [one["field"] for one in http.get("/readyz").json()["errors"]] == ["database"]
                assert http.get("/livez").json() == {"status": "ok"}
                refused = http.get("/v1/jobs")
                assert refused.status_code == 503
                assert "the database does not answer" in refused.json()["errors"][0]["message"]
                assert transport.dropped == 0
            finally:
                postgres.start()
            for summary in summaries[50:]:
                transport.send(Report(summary))
            eventually(lambda: http.get("/readyz").status_code == 200)
            eventually(lambda: service.store.job("run").rows == STEPS)
            transport.close(5)
            assert (transport.dropped, transport.rejected) == (0, 0)
        assert [entry.step for entry in service.store.recorded("run").entries] == list(range(STEPS))
        assert service.state("run") == undisturbed
        service.close()


def test_two_replicas_take_turns_with_one_job(
    postgres: PostgresServer, summaries: list[StepSummary], undisturbed: RunState
) -> None:
    with postgres.database() as db:
        opened(db).close()
        preset = opened(db)
        preset.register("run", config=None, mode=None, issuer="me", reason="r")
        preset.close()
        with serving(db) as (_, one), serving(db) as (_, other), Client(one) as first, Client(other) as second:
            for step, summary in enumerate(summaries):
                (first, second)[step % 2].ingest(summary)
            for client in (first, second):
                assert client.job("run").step == STEPS - 1
            patched = second.patch_controls("run", {"clip_low": 0.11}, reason="why")
            assert first.controls("run").generation == patched.generation
        after = opened(db)
        entries = after.store.recorded("run").entries
        assert [entry.step for entry in entries] == [*range(STEPS), None]
        state = after.state("run")
        assert RUN_STATE.encode(state) != RUN_STATE.encode(undisturbed), "a person has changed something"
        assert (state.verdicts, state.tracks, state.incidents) == (
            undisturbed.verdicts,
            undisturbed.tracks,
            undisturbed.incidents,
        )
        after.close()


def test_two_replicas_that_are_told_everything_at_once_store_it_once(postgres: PostgresServer) -> None:
    """Four threads on each replica, all with the same two jobs; nobody waits for ever."""
    jobs = ("a", "b")
    runs = {job: [StepSummary(job=job, attempt=1, step=step) for step in range(30)] for job in jobs}
    failures: list[BaseException] = []

    def report(url: str, job: str) -> None:
        try:
            with Client(url) as client:
                for summary in runs[job]:
                    client.ingest(summary)
        except BaseException as error:
            failures.append(error)

    with postgres.database() as db, serving(db) as (_, one), serving(db) as (_, other):
        threads = [
            threading.Thread(target=report, args=(url, job)) for url in (one, other) for job in jobs for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert failures == []
        assert not any(thread.is_alive() for thread in threads)
        service = opened(db)
        assert {job.name: job.rows for job in service.store.jobs()} == dict.fromkeys(jobs, 30)
        for job in jobs:
            assert [entry.seq for entry in service.store.recorded(job).entries] == list(range(1, 31))
        service.close()


def test_a_job_that_another_session_holds_is_told_alike_alone_and_in_a_batch(postgres: PostgresServer) -> None:
    with postgres.database() as db:
        service = opened(db)
        held, free = (StepSummary(job=job, attempt=1, step=1, scalars={"hush": 42.5}) for job in ("held", "free"))
        service.ingest(StepSummary(job="held", attempt=1, step=0))
        bodies = [SUMMARY.encode(one) for one in (held, free)]
        with (
            running(service) as url,
            httpx.Client(base_url=url, trust_env=False, timeout=30) as http,
            service.database.engine.connect() as session,
            session.begin(),
        ):
            find = select(JobRow.id).where(JobRow.name == "held")
            assert queries.own(session, [session.execute(find).scalar_one()])
            alone = http.post("/v1/summaries", content=bodies[0])
            batch = http.post("/v1/summaries/batch", content=f"[{','.join(bodies)}]")
        service.close()
    assert (alone.status_code, batch.status_code) == (503, 200)
    refused, taken = batch.json()["results"]
    assert refused["result"] == "failed"
    assert refused["errors"] == alone.json()["errors"]
    message = "the database does not answer (canceling statement due to lock timeout); send it again later"
    assert refused["errors"] == [{"field": "", "value": None, "message": message}]
    assert taken["result"] == "stored"


def test_when_every_connection_is_taken_callers_are_told_to_come_again(postgres: PostgresServer) -> None:
    with postgres.database() as db:
        service = opened(db)
        service.database.engine.pool._timeout = 0.2  # the ten seconds of `trimtab.storage.engine`, for this test
        give(service, [StepSummary(job="run", attempt=1, step=0)])
        with running(service) as url, httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
            eventually(lambda: http.get("/v1/jobs/run").status_code == 200)
            taken = []
            with contextlib.suppress(PoolTimeout):
                while True:
                    taken.append(service.database.engine.connect())
            refused = http.get("/v1/jobs/run")
            assert refused.status_code == 503
            assert "the database does not answer" in refused.json()["errors"][0]["message"]
            for connection in taken:
                connection.close()
            assert http.get("/v1/jobs/run").status_code == 200
        service.close()
