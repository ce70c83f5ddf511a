"""Workers that work, fail and end."""

import asyncio

import pytest

from trimtab.api.background import Background, rest

SOON_S = 0.001


class Steady:
    """Notes when it began and ended."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    async def run(self, stop: asyncio.Event) -> None:
        self.notes.append(f"{self.name} begins")
        await stop.wait()
        self.notes.append(f"{self.name} ends")


class Failing:
    """Fails so many times, and works then."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.works = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self.left -= 1
        if self.left >= 0:
            raise ValueError(f"{self.left} left")
        self.works.set()
        await stop.wait()


class Leaving(Failing):
    """Ends before it is told to."""

    async def run(self, stop: asyncio.Event) -> None:  # noqa: ARG002 - the protocol's
        self.works.set()


class Stubborn:
    """Does not end when it is told to."""

    cancelled = False

    async def run(self, stop: asyncio.Event) -> None:  # noqa: ARG002 - the protocol's
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


def test_workers_end_in_the_reverse_order_of_their_start() -> None:
    notes: list[str] = []

    async def scene() -> None:
        at_work = Background([Steady("first", notes)])
        at_work.add(Steady("second", notes))
        async with at_work.at_work():
            await asyncio.sleep(0)
            notes.append("at work")

    asyncio.run(scene())
    assert notes == ["first begins", "second begins", "at work", "second ends", "first ends"]


def test_one_that_fails_works_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        failing, notes = Failing(2), list[str]()
        at_work = Background([failing, Steady("other", notes)], first_retry_s=SOON_S)
        async with at_work.at_work():
            await failing.works.wait()
            assert at_work.idle == {}
        assert notes == ["other begins", "other ends"]

    asyncio.run(scene())
    assert [record.getMessage() for record in caplog.records] == ["Failing has failed"] * 2


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        (Failing, "has failed (ValueError; the log has the details), and works again in 3600 s"),
        (Leaving, "has ended by itself, and works again in 3600 s"),
    ],
)
def test_one_that_does_not_work_is_told_and_holds_up_no_end(worker: type[Failing], why: str) -> None:
    async def scene() -> None:
        at_work = Background([worker(10)], first_retry_s=3600)
        async with at_work.at_work():
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert at_work.idle == {worker.__name__: why}

    asyncio.run(scene())


def test_one_that_does_not_end_is_given_up() -> None:
    async def scene() -> None:
        stubborn = Stubborn()
        async with Background([stubborn], grace_s=SOON_S).at_work():
            await asyncio.sleep(0)
        assert stubborn.cancelled

    asyncio.run(scene())


def test_a_rest_ends_with_whatever_comes_first() -> None:
    async def resting() -> None:
        stop, wake = asyncio.Event(), asyncio.Event()
        await rest(stop, 0.0)
        wake.set()
        await rest(stop, wake=wake)
        assert not wake.is_set()
        resting = asyncio.create_task(rest(stop, wake=wake))
        await asyncio.sleep(0)
        assert not resting.done()
        stop.set()
        await resting
        await asyncio.sleep(0)
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(resting())
