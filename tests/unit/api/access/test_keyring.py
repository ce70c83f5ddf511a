"""Tokens in memory: never older than said, read once however many ask, and no substitute for a database."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from access_runs import Clock, issued, issuing
from sqlalchemy.exc import DBAPIError

from trimtab.api.access.keyring import FRESH_S, STALE_S, Keyring
from trimtab.api.access.scopes import Scope
from trimtab.api.service import Service
from trimtab.storage.database import Database
from trimtab.storage.tokens import StoredToken, Tokens
from trimtab.storage.values import Origin


class CountedTokens(Tokens):
    """Counts how often the database is asked."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.reads = 0

    def all(self) -> list[StoredToken]:
        self.reads += 1
        return super().all()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service.open(tmp_path / "agent.db")
    yield service
    service.close()


@pytest.fixture
def stored(service: Service) -> CountedTokens:
    return CountedTokens(service.database)


@pytest.fixture
def clock() -> Clock:
    return Clock(50.0)


@pytest.fixture
def keyring(stored: CountedTokens, clock: Clock) -> Keyring:
    return Keyring(stored, monotonic=clock)


async def settled(keyring: Keyring) -> None:
    """Wait until nothing is read behind the scenes."""
    while keyring._reading is not None:
        await asyncio.sleep(0)


def test_many_requests_ask_the_database_once(keyring: Keyring, stored: CountedTokens) -> None:
    async def ask() -> None:
        first = await asyncio.gather(*(keyring.keys() for _ in range(50)))
        assert all(keys is first[0] for keys in first)
        assert await keyring.keys() is first[0]

    asyncio.run(ask())
    assert stored.reads == 1


def test_what_another_process_changes_is_known_in_time(
    keyring: Keyring, stored: CountedTokens, service: Service, clock: Clock
) -> None:
    id = issued(service, Scope.READ).split("_")[1]

    async def ask() -> list[bool]:
        async def valid() -> bool:
            return (await keyring.keys()).tokens[id].valid(service.clock())

        seen = [await valid()]
        issuing(service).revoke(id, reason="", origin=Origin())
        clock.now += FRESH_S - 0.1
        seen.append(await valid())
        assert stored.reads == 1
        clock.now += 0.2
        seen.append(await valid())  # answered from memory, and read behind the scenes
        await settled(keyring)
        seen.append(await valid())
        assert stored.reads == 2
        return seen

    assert asyncio.run(ask()) == [True, True, True, False]


def test_what_is_stale_is_never_answered_with(keyring: Keyring, service: Service, clock: Clock) -> None:
    id = issued(service, Scope.READ).split("_")[1]

    async def ask() -> bool:
        await keyring.keys()
        issuing(service).revoke(id, reason="", origin=Origin())
        clock.now += STALE_S
        return (await keyring.keys()).tokens[id].valid(service.clock())

    assert asyncio.run(ask()) is False


def test_what_this_process_changes_holds_at_once(keyring: Keyring, service: Service) -> None:
    async def ask() -> tuple[int, int, int]:
        before = len((await keyring.keys()).tokens)
        issued(service, Scope.READ)
        unaware = len((await keyring.keys()).tokens)
        keyring.forget()
        return before, unaware, len((await keyring.keys()).tokens)

    assert asyncio.run(ask()) == (0, 0, 1)


def test_a_change_while_it_reads_is_read_after_it(
    keyring: Keyring, stored: CountedTokens, service: Service, clock: Clock
) -> None:
    async def ask() -> int:
        await keyring.keys()
        clock.now += FRESH_S
        await keyring.keys()
        await asyncio.sleep(0)  # it has begun
        issued(service, Scope.READ)
        keyring.forget()
        return len((await keyring.keys()).tokens)

    assert asyncio.run(ask()) == 1
    assert stored.reads == 3


def test_a_request_that_is_given_up_takes_no_other_with_it(keyring: Keyring) -> None:
    async def ask() -> int:
        impatient, patient = (asyncio.ensure_future(keyring.keys()) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        return len((await patient).tokens)

    assert asyncio.run(ask()) == 0


def test_without_a_database_it_goes_on_for_seconds_and_then_knows_nobody(
    keyring: Keyring, service: Service, clock: Clock
) -> None:
    issued(service, Scope.READ)

    async def ask() -> None:
        await keyring.keys()
        with service.database.write() as connection:
            connection.exec_driver_sql("ALTER TABLE tokens RENAME TO gone")
        clock.now += STALE_S - 0.1
        assert len((await keyring.keys()).tokens) == 1
        await settled(keyring)
        assert len((await keyring.keys()).tokens) == 1
        await settled(keyring)
        clock.now += 0.1
        for _ in range(2):
            with pytest.raises(DBAPIError):
                await keyring.keys()
        with service.database.write() as connection:
            connection.exec_driver_sql("ALTER TABLE gone RENAME TO tokens")
        assert len((await keyring.keys()).tokens) == 1

    asyncio.run(ask())
