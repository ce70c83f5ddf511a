"""Summaries from many requests in few transactions, on a real SQLite file."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from agent_runs import Plant
from postgres import PostgresServer
from sqlalchemy.exc import DataError, OperationalError

from trimtab.api.folding import Input
from trimtab.api.ingest import HIGH_WATER, MAX_TOGETHER, Answer, IngestQueue
from trimtab.api.problem import ApiError
from trimtab.api.service import Service, ingested
from trimtab.storage import queries


class CountingService(Service):
    """Counts what goes into each transaction."""

    sizes: tuple[int, ...] = ()

    def commit(self, inputs: Sequence[Input]) -> list[Answer]:
        self.sizes += (len(inputs),)
        return super().commit(inputs)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[CountingService]:
    opened = CountingService.open(tmp_path / "agent.db")
    assert isinstance(opened, CountingService)
    yield opened
    opened.close()


def inputs(service: Service, steps: int, job: str = "run") -> list[Input]:
    plant = Plant(seed=0, job=job)
    return [service.summary_input(plant.advance()) for _ in range(steps)]


async def stored(service: Service, *requests: list[Input]) -> list[list[Answer]]:
    """What each request is answered, when all come at once and the queue is stopped behind them."""
    queue, stop = IngestQueue(service), asyncio.Event()
    asking = [asyncio.create_task(queue.put(request)) for request in requests]
    await asyncio.sleep(0)
    stop.set()
    await queue.run(stop)
    return list(await asyncio.gather(*asking))


def test_what_comes_together_is_stored_together_in_order(service: CountingService) -> None:
    one, other = inputs(service, 3), inputs(service, 2, job="other")
    answers = asyncio.run(stored(service, one, other))
    assert service.sizes == (5,)
    assert [[ingested(answer).result for answer in each if isinstance(answer, tuple)] for each in answers] == [
        ["stored"] * 3,
        ["stored"] * 2,
    ]
    assert [entry.step for entry in service.store.recorded("run").entries] == [0, 1, 2]


def test_a_transaction_is_no_larger_than_a_person_can_wait_for(service: CountingService) -> None:
    asyncio.run(stored(service, inputs(service, MAX_TOGETHER + 1)))
    assert service.sizes == (MAX_TOGETHER, 1)
    assert service.store.job("run").rows == MAX_TOGETHER + 1


def test_one_that_is_refused_takes_nothing_with_it(service: CountingService) -> None:
    first, second = inputs(service, 2)
    other = service.summary_input(Plant(seed=1).advance())
    ((a, b, c),) = asyncio.run(stored(service, [first, other, second]))
    assert isinstance(a, tuple)
    assert type(b).__name__ == "ConflictError"
    assert isinstance(c, tuple)
    assert service.store.job("run").rows == 2
    assert service.store.quarantined("run") == 1


def test_a_queue_that_is_full_takes_nothing(service: CountingService) -> None:
    async def full() -> None:
        queue = IngestQueue(service)
        one = inputs(service, 1)
        asking = [asyncio.create_task(queue.put(one * HIGH_WATER))]
        await asyncio.sleep(0)
        assert queue.is_full
        with pytest.raises(ApiError, match="send it again in 2 s") as refused:
            await queue.put(one)
        assert (refused.value.status, refused.value.headers) == (503, {"retry-after": "2"})
        assert queue.depth == HIGH_WATER
        asking[0].cancel()

    asyncio.run(full())


def test_a_database_that_fails_is_told_to_whoever_asked(service: CountingService) -> None:
    async def failing() -> None:
        asking = inputs(service, 2)
        with service.database.write() as connection:
            connection.exec_driver_sql("DROP TABLE observations")
        with pytest.raises(OperationalError, match="no such table: observations"):
            await stored(service, asking)

    asyncio.run(failing())
    assert service.store.jobs() == []


def test_a_value_that_the_database_refuses_takes_nothing_with_it(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        service = Service.open(url)
        first, bad, last = inputs(service, 3)
        bad = replace(bad, entry=replace(bad.entry, rank=2**31))
        ((a, b, c),) = asyncio.run(stored(service, [first, bad, last]))
        assert isinstance(b, DataError)
        assert [ingested(one).result for one in (a, c) if isinstance(one, tuple)] == ["stored", "stored"]
        assert [entry.step for entry in service.store.recorded("run").entries] == [0, 2]
        service.close()


def test_a_job_that_another_replica_holds_holds_up_no_other(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        service = Service.open(f"{url}&options=-c%20lock_timeout%3D50ms")
        for job in ("held", "free"):
            service.register(job, config=None, mode=None, issuer="me", reason="r")
        other = Service.open(url)
        with other.database.write() as connection:
            queries.own(connection, [queries.job_id(connection, "held")])
            held, free = asyncio.run(stored(service, inputs(service, 2, "held"), inputs(service, 2, "free")))
        assert [type(one).__name__ for one in held] == ["OperationalError"] * 2
        assert [ingested(one).result for one in free if isinstance(one, tuple)] == ["stored"] * 2
        ((again, _),) = asyncio.run(stored(service, inputs(service, 2, "held")))
        assert isinstance(again, tuple)
        service.close()
        other.close()
