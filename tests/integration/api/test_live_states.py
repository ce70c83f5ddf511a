"""States in memory are those that the ledger gives, whoever wrote it, on both databases."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from agent_runs import Plant
from postgres import PostgresServer

from trimtab.agent.run_state import RunState
from trimtab.agent.state import Mode, OperatorAction, OperatorVerb
from trimtab.api.folding import SNAPSHOT_EVERY
from trimtab.api.restore import caught_up
from trimtab.api.service import Service, Taken
from trimtab.hooks.records import StepSummary
from trimtab.storage.store import ConflictError

STEPS = SNAPSHOT_EVERY + 20


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> list[StepSummary]:
    """A run that is saved on its way."""
    service = Service.open(tmp_path_factory.mktemp("straight") / "agent.db")
    service.register("run", config=None, mode=Mode.AUTO, issuer="me", reason="r")
    plant, found = Plant(seed=2, noisy_from=10), []
    for _ in range(STEPS):
        found.append(plant.advance())
        plant.obey(service.ingest(found[-1]).command)
    assert service.state("run").generation > 0
    service.close()
    return found


@pytest.fixture
def straight(summaries: list[StepSummary], tmp_path: Path) -> Iterator[Service]:
    """One undisturbed process that had them all."""
    service = opened(tmp_path / "straight.db")
    for summary in summaries:
        service.ingest(summary)
    yield service
    service.close()


def opened(target: str | Path) -> Service:
    service = Service.open(target)
    service.register("run", config=None, mode=Mode.AUTO, issuer="me", reason="r")
    return service


def from_the_start(service: Service) -> RunState:
    """The whole ledger, folded without any snapshot."""
    return service.store.read("run", lambda past: caught_up(replace(past, snapshot=lambda: None), None)).state


def test_two_processes_that_take_turns_fold_as_one(
    database_url: str, summaries: list[StepSummary], straight: Service
) -> None:
    one, other = opened(database_url), opened(database_url)
    for step, summary in enumerate(summaries):
        (one, other)[step % 3 == 0].ingest(summary)
    assert one.state("run") == other.state("run") == straight.state("run") == from_the_start(one)
    events = straight.store.recorded("run").events
    assert one.store.recorded("run").events == events
    for service in (one, other):
        service.close()


def test_processes_that_race_for_a_job_store_each_summary_once_and_in_one_order(
    postgres: PostgresServer, summaries: list[StepSummary]
) -> None:
    with postgres.database() as url:
        services = [opened(url) for _ in range(3)]
        race(services, summaries)
        for service in services:
            service.close()


def race(services: list[Service], summaries: list[StepSummary]) -> None:
    results: list[Taken | None] = []
    gate = threading.Barrier(len(services), timeout=20)

    def send(service: Service) -> None:
        gate.wait()
        for summary in summaries[:40]:
            results.append(service.ingest(summary).result)

    threads = [threading.Thread(target=send, args=(service,)) for service in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 120
    assert results.count(Taken.DUPLICATE) == 80
    recorded = services[0].store.recorded("run")
    assert [entry.seq for entry in recorded.entries] == list(range(1, len(recorded.entries) + 1))
    keys = [(entry.attempt, entry.step, entry.rank) for entry in recorded.entries if entry.kind == "summary"]
    assert len(keys) == len(set(keys)) == 40
    states = [service.state("run") for service in services]
    assert states == [from_the_start(services[0])] * 3


def test_jobs_in_opposite_orders_do_not_wait_for_each_other(database_url: str) -> None:
    services = [Service.open(database_url) for _ in range(2)]
    gate = threading.Barrier(2, timeout=20)

    def send(service: Service, jobs: list[str]) -> None:
        plants = {job: Plant(seed=0, job=job) for job in jobs}
        for _ in range(20):
            gate.wait()
            service.commit([service.summary_input(plants[job].advance()) for job in jobs])

    orders = (["a", "b", "c"], ["c", "b", "a"])
    threads = [threading.Thread(target=send, args=pair) for pair in zip(services, orders, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(job.name, job.rows) for job in services[0].store.jobs()] == [("c", 20), ("b", 20), ("a", 20)]
    for service in services:
        service.close()


@pytest.mark.parametrize("kept", [True, False])
def test_a_process_that_dies_is_followed_by_one_that_knows_as_much(
    database_url: str, summaries: list[StepSummary], straight: Service, kept: bool
) -> None:
    service = opened(database_url)
    for summary in summaries[:-5]:
        service.ingest(summary)
    if kept:
        service.close()
    snapshot = service.store.read("run", lambda past: past.snapshot())
    assert snapshot is not None
    assert (snapshot.seq == len(summaries) - 5 + 1) is kept
    after = Service.open(database_url)
    for summary in summaries[-5:]:
        after.ingest(summary)
    assert after.state("run") == straight.state("run")
    after.close()
    service.database.close()


def test_one_that_is_refused_changes_nothing_of_those_beside_it(
    database_url: str, summaries: list[StepSummary], straight: Service
) -> None:
    service = opened(database_url)
    bad = replace(summaries[3], scalars={"reward_mean": 0.0})
    wanted = [*summaries[:10], bad, summaries[4], *summaries[10:]]
    answers = service.commit([service.summary_input(summary) for summary in wanted])
    assert [number for number, answer in enumerate(answers) if isinstance(answer, Exception)] == [10]
    assert isinstance(answers[10], ConflictError)
    assert service.state("run") == straight.state("run")
    assert service.store.recorded("run").events == straight.store.recorded("run").events
    service.close()


def test_what_is_not_committed_was_never_folded(database_url: str, summaries: list[StepSummary]) -> None:
    service = opened(database_url)
    for summary in summaries[:12]:
        service.ingest(summary)
    before = service.state("run")
    heard: list[object] = []
    service.listeners.append(heard.append)
    with service.database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE observations RENAME TO elsewhere")
    with pytest.raises(Exception, match="observations"):
        service.ingest(summaries[12])
    assert (service.state("run"), heard) == (before, [])
    with service.database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO observations")
    assert service.ingest(summaries[12]).result is Taken.STORED
    assert service.state("run") == from_the_start(service)
    assert len(heard) == 1
    service.close()


def test_a_persons_action_is_folded_where_it_came(database_url: str, summaries: list[StepSummary]) -> None:
    one, other = opened(database_url), opened(database_url)
    for summary in summaries[:5]:
        one.ingest(summary)
    action = OperatorAction(
        job="run", verb=OperatorVerb.PATCH_CONTROLS, issuer="me", reason="r", overrides={"clip_low": 0.1}
    )
    other.operate(action)
    answer = one.ingest(summaries[5])
    assert answer.command is not None
    assert answer.command.overrides == {"clip_low": 0.1}
    for service in (one, other):
        service.close()
