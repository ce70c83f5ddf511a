"""Whether the service can serve, with a real database."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_runs import Plant
from sqlalchemy.exc import TimeoutError as NoConnectionError

from trimtab.api.background import Background
from trimtab.api.ingest import HIGH_WATER, IngestQueue
from trimtab.api.readiness import LEAST_FREE, Readiness
from trimtab.api.service import Service
from trimtab.storage.database import Database

SOON_S = 0.001


class HangingDatabase(Database):
    """Does not answer until it is let go."""

    asked = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.let_go = threading.Event()

    def not_ready(self) -> list[str]:
        self.asked += 1
        self.let_go.wait()
        return super().not_ready()


class BusyDatabase(Database):
    """Has no connection left."""

    def not_ready(self) -> list[str]:
        raise NoConnectionError("QueuePool limit reached")


class Failing:
    async def run(self, stop: asyncio.Event) -> None:  # noqa: ARG002 - the protocol's
        raise ValueError("no such luck")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service.open(tmp_path / "agent.db")
    yield service
    service.close()


def told(readiness: Readiness) -> list[tuple[str, object, str]]:
    return [(one.field, one.value, one.message) for one in asyncio.run(readiness.reasons())]


def test_nothing_is_wrong_with_a_new_database(service: Service) -> None:
    readiness = Readiness(service.database, IngestQueue(service), Background())
    assert told(readiness) == []


def test_a_disk_that_is_nearly_full_is_told_once_in_the_log(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="trimtab.api")
    free = {"bytes": LEAST_FREE - 1}
    readiness = Readiness(service.database, IngestQueue(service), Background(), free=lambda _: free["bytes"])
    folder = Path(service.database.name).parent
    assert told(readiness) == [("disk", None, f"only 64 MB are free in {folder}; make room")]
    free["bytes"] = 3_000_000
    assert told(readiness) == [("disk", None, f"only 3 MB are free in {folder}; make room")]
    free["bytes"] = LEAST_FREE
    assert told(readiness) == []
    assert [record.getMessage() for record in caplog.records if record.name == "trimtab.api"] == [
        f"not ready: disk: only 64 MB are free in {folder}; make room",
        "ready again",
    ]


def test_a_queue_that_takes_no_more_is_told(service: Service) -> None:
    async def scene() -> None:
        queue = IngestQueue(service)
        readiness = Readiness(service.database, queue, Background())
        asking = asyncio.create_task(queue.put([service.summary_input(Plant(seed=0).advance())] * HIGH_WATER))
        await asyncio.sleep(0)
        (reason,) = await readiness.reasons()
        assert (reason.field, reason.value) == ("queue", HIGH_WATER)
        assert reason.message == f"{HIGH_WATER} summaries wait to be stored, and no more are taken from {HIGH_WATER} on"
        asking.cancel()

    asyncio.run(scene())


def test_a_worker_that_has_failed_is_told(service: Service) -> None:
    async def scene() -> None:
        background = Background([Failing()])
        readiness = Readiness(service.database, IngestQueue(service), background)
        async with background.at_work():
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            (reason,) = await readiness.reasons()
        assert (reason.field, reason.value) == ("workers", "Failing")
        assert reason.message == "has failed (ValueError; the log has the details), and works again in 1 s"

    asyncio.run(scene())


def test_a_database_that_hangs_holds_up_no_probe_and_is_asked_once(tmp_path: Path) -> None:
    database = HangingDatabase(tmp_path / "agent.db")
    database.migrate()

    async def scene() -> None:
        readiness = Readiness(database, IngestQueue(Service(database)), Background(), patience_s=SOON_S)
        try:
            for _ in range(3):  # the disk may take as long, where the machine is busy
                reasons = {reason.field: reason.message for reason in await readiness.reasons()}
                assert reasons["database"] == "no answer within 0.001 s"
            assert database.asked == 1
        finally:
            database.let_go.set()  # or the end of the loop waits for its thread
        patient = Readiness(database, IngestQueue(Service(database)), Background())
        assert await patient.reasons() == []

    asyncio.run(scene())
    database.close()


def test_a_database_without_a_connection_left_is_told(tmp_path: Path) -> None:
    database = BusyDatabase(tmp_path / "agent.db")
    readiness = Readiness(database, IngestQueue(Service(database)), Background())
    assert told(readiness) == [("database", None, "QueuePool limit reached")]
    database.close()
