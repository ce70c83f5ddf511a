"""The hub: what is told to whom, and who is sent away."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from agent_runs import step_summary

from trimtab.api.background import Background
from trimtab.api.hub import MOST_WAITING, Hub, Message, Watcher
from trimtab.api.problem import ApiError
from trimtab.api.service import Service


def played(service: Service, scene: Callable[[Hub], Awaitable[None]]) -> None:
    """A scene while a hub works that looks only when it is nudged, as often as it is."""

    async def play() -> None:
        hub, stop = Hub(service.database, every=3600.0, least=0.0), asyncio.Event()
        service.listeners.append(hub.stored)
        task = asyncio.create_task(hub.run(stop))
        try:
            async with asyncio.timeout(30):
                await scene(hub)
        finally:
            stop.set()
            await task

    asyncio.run(play())


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service.open(tmp_path / "agent.db")


def test_nothing_that_was_there_before_is_news(service: Service) -> None:
    service.ingest(step_summary(0, job="old"))

    async def scene(hub: Hub) -> None:
        with hub.watching(None) as watcher:
            await watcher.ready.wait()
            await asyncio.to_thread(service.ingest, step_summary(0, job="new"))
            told = [await watcher.next() for _ in range(3)]
            assert [(one.kind, one.job, one.number) for one in told if one] == [
                ("job", "new", None),
                ("summary", "new", None),
                ("event", "new", 1),
            ]

    played(service, scene)
    service.close()


def test_a_job_that_somebody_begins_to_watch_is_no_new_one(service: Service) -> None:
    for job in ("a", "b"):
        service.ingest(step_summary(0, job=job))

    async def scene(hub: Hub) -> None:
        with hub.watching("a") as one:
            await one.ready.wait()
            with hub.watching(None) as all_of_them:
                await all_of_them.ready.wait()
                await asyncio.to_thread(service.ingest, step_summary(1, job="b"))
                told = await all_of_them.next()
                assert told == Message(kind="summary", job="b", data={"job": "b", "attempt": 1, "step": 1})

    played(service, scene)
    service.close()


def test_more_events_than_one_look_takes_come_in_order(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.storage.feed.MOST_EVENTS", 2)
    service.ingest(step_summary(0))

    async def scene(hub: Hub) -> None:
        with hub.watching("run") as watcher:
            await watcher.ready.wait()
            for attempt in range(2, 9):
                await asyncio.to_thread(service.ingest, step_summary(0, attempt=attempt))
            numbers: list[int] = []
            while len(numbers) < 7:
                message = await watcher.next()
                assert message is not None
                if message.number is not None:
                    numbers.append(message.number)
            assert numbers == [2, 3, 4, 5, 6, 7, 8]

    played(service, scene)
    service.close()


def test_whoever_reads_too_slowly_is_sent_away_and_counted(service: Service) -> None:
    watcher = Watcher(None, most=2)
    message = Message(kind="job", job="run", data={})
    assert [watcher.tell(message) for _ in range(3)] == [True, True, False]

    async def scene(hub: Hub) -> None:
        with hub.watching("run") as slow:
            await slow.ready.wait()
            for _ in range(MOST_WAITING):
                assert slow.tell(message)
            await asyncio.to_thread(service.ingest, step_summary(1))
            while hub.watchers:
                await asyncio.sleep(0)
            assert hub.sent_away == 1
            assert await slow.next() is None

    service.ingest(step_summary(0))
    played(service, scene)
    service.close()


def test_a_hub_that_is_closed_lets_nobody_in(service: Service) -> None:
    async def scene(hub: Hub) -> None:
        with hub.watching(None) as watcher:
            await watcher.ready.wait()
            hub.close()
            assert await watcher.next() is None
        with pytest.raises(ApiError, match="the service ends"), hub.watching(None):
            pass

    played(service, scene)
    service.close()


class StumblingHub(Hub):
    """Fails at its first look."""

    looks = 0

    async def _look(self) -> None:
        self.looks += 1
        if self.looks == 1:
            raise ValueError("a defect")
        await super()._look()


def test_watchers_outlast_a_hub_that_fails_and_works_again(service: Service) -> None:
    async def scene() -> None:
        hub = StumblingHub(service.database, every=0.01, least=0.0)
        service.listeners.append(hub.stored)
        async with asyncio.timeout(30), Background([hub], first_retry_s=0.001).at_work():
            with hub.watching(None) as watcher:
                await watcher.ready.wait()
                await asyncio.to_thread(service.ingest, step_summary(0))
                message = await watcher.next()
        assert message is not None
        assert message.job == "run"

    asyncio.run(scene())
    service.close()
