"""What waits to be told, how long it has waited, and how much room everything takes; on both kinds of database."""

from collections.abc import Iterator

import pytest
from agent_runs import Plant

from trimtab.api.service import Service
from trimtab.storage import outbox
from trimtab.storage.alert import AlertKind, Severity
from trimtab.storage.backlog import Backlog, Waiting, backlog
from trimtab.storage.database import Database
from trimtab.storage.deliveries import Deliveries
from trimtab.storage.delivery import NewMessage, Settlement, Status
from trimtab.storage.endpoints import Endpoint, Endpoints, Timing
from trimtab.storage.size import size_of
from trimtab.storage.values import Origin

NOTHING = Waiting(rows=0, since=None)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    database.migrate()
    yield database
    database.close()


def endpoint(name: str) -> Endpoint:
    return Endpoint(
        id=name,
        name=name,
        shape="trimtab",
        url="https://receiver.example/",
        severity=Severity.WARNING,
        kinds=(AlertKind.INCIDENT,),
        timing=Timing(group_wait=0, group_interval=0, repeat_interval=None),
        secret="whsec_x",
        created_at=1.0,
    )


def message(name: str) -> NewMessage:
    return NewMessage(message_id=name, subject=name, reason="test", body="{}", tries=1)


def test_nothing_waits_at_first(database: Database) -> None:
    assert backlog(database) == Backlog(grouping=NOTHING, delivery=NOTHING, dead=0)


def test_a_change_waits_until_it_is_looked_at(database: Database) -> None:
    service = Service(database)
    service.ingest(Plant(seed=0).advance())
    with database.write() as connection:
        for at in (20.0, 10.0):
            outbox.touch(connection, 1, at)
    assert backlog(database) == Backlog(grouping=Waiting(rows=2, since=10.0), delivery=NOTHING, dead=0)


def test_a_message_waits_until_it_is_delivered_or_given_up_or_nobody_wants_it(database: Database) -> None:
    endpoints, deliveries = Endpoints(database), Deliveries(database)
    for name in ("one", "two"):
        endpoints.add(endpoint(name), origin=Origin(), reason="test")
        deliveries.send(name, message(f"to-{name}"), 10.0 if name == "one" else 20.0)
    assert backlog(database).delivery == Waiting(rows=2, since=10.0)
    claims = {claim.endpoint.id: claim for claim in deliveries.claim(30.0, lease="me", until=60.0)}
    dead = Settlement(status=Status.DEAD, answer=500, error="it answered 500")
    deliveries.settle(claims["one"], dead, 31.0)
    deliveries.release(claims["two"])
    assert backlog(database) == Backlog(grouping=NOTHING, delivery=Waiting(rows=1, since=20.0), dead=1)
    endpoints.change("two", lambda _: {"enabled": False}, now=32.0, origin=Origin(), reason="not now")
    assert backlog(database).delivery == NOTHING


def test_a_database_takes_more_room_the_more_is_in_it(database: Database) -> None:
    before = size_of(database)
    service = Service(database)
    plant = Plant(seed=0)
    service.commit([service.summary_input(plant.advance()) for _ in range(200)])
    assert size_of(database) > before > 0
