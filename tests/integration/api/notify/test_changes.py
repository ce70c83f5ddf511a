"""Endpoints that are changed while something else goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from alerting import FIRING, LOOPBACK, Office, firing, told
from postgres import PostgresServer
from receivers import Answer, Handler, Receiver, reply

from trimtab.api.notify.desk import Desk, WebhookRuleError
from trimtab.api.notify.posting import Poster
from trimtab.storage.delivery import Status
from trimtab.storage.endpoints import Endpoint, EndpointConflictError, found
from trimtab.storage.values import Origin


def change(office: Office, **fields: Any) -> Endpoint:
    return office.endpoints.change("ep_1", lambda _: fields, now=office.clock(), origin=Origin(), reason="test")


def meanwhile(do: Callable[[], object], answer: Answer) -> Answer:
    """An answer before which something is done."""

    def answered(handler: Handler) -> None:
        do()
        answer(handler)

    return answered


@pytest.mark.parametrize(
    "answer", [reply(410), reply(404), reply(503, retry_after="7200"), reply(404, retry_after="7200")]
)
def test_what_an_address_answers_says_nothing_of_the_one_after_it(office: Office, answer: Answer) -> None:
    with Receiver() as old, Receiver() as new:
        old.default = meanwhile(lambda: change(office, url=new.url), answer)
        office.add(old)
        office.happen(firing())
        office.work()
        assert (told(old.received), told(new.received)) == ([FIRING], [FIRING])
        assert old.received[0].headers["webhook-id"] == new.received[0].headers["webhook-id"]
    present = office.endpoints.get("ep_1")
    assert (present.url, present.enabled, present.not_before) == (new.url, True, None)
    assert office.statuses() == [(Status.DELIVERED, 2, 200)]


def test_a_test_that_did_not_arrive_at_the_address_before_is_over(office: Office) -> None:
    with Receiver() as old, Receiver() as new:
        old.default = meanwhile(lambda: change(office, url=new.url), reply(410))
        office.add(old)
        office.worker(Poster(LOOPBACK)).trial("ep_1")
        office.work()
        assert new.received == []
    assert office.endpoints.get("ep_1").enabled
    assert office.statuses() == [(Status.DEAD, 1, 410)]


def test_another_address_is_asked_at_once_whatever_the_one_before_said(office: Office) -> None:
    with Receiver(reply(503, retry_after="7200")) as old, Receiver() as new:
        office.add(old)
        office.happen(firing())
        office.work()
        office.work(seconds=60)
        assert len(old.received) == 1
        change(office, url=new.url)
        office.work()
        assert told(new.received) == [FIRING]
    assert office.statuses() == [(Status.DELIVERED, 2, 200)]


def test_an_endpoint_that_is_enabled_again_is_asked_though_it_wanted_rest(office: Office) -> None:
    with Receiver(reply(503, retry_after="7200")) as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        change(office, enabled=False)
        change(office, enabled=True)
        office.work(seconds=60)  # and no sooner than two messages may follow each other
        assert told(receiver.received) == [FIRING, FIRING]
    assert office.statuses() == [(Status.DEAD, 1, 503), (Status.DELIVERED, 1, 200)]


def test_what_has_arrived_has_arrived_though_its_endpoint_was_disabled_meanwhile(office: Office) -> None:
    with Receiver() as receiver:
        receiver.default = meanwhile(lambda: change(office, enabled=False), reply(200))
        office.add(receiver)
        office.happen(firing())
        office.work()
    (one,) = office.log()
    assert (one.status, one.answer, one.error) == (Status.DELIVERED, 200, "")
    assert not office.endpoints.get("ep_1").enabled


# What two do at once, on PostgreSQL: on SQLite there is one writer at a time


@pytest.fixture
def busy(postgres: PostgresServer) -> Iterator[Office]:
    with postgres.database() as url:
        office = Office(url)
        office.add("https://example.com/hook")
        yield office
        office.close()


def at_once(office: Office, *deeds: Callable[[Desk], Endpoint]) -> list[Future[Endpoint]]:
    """Let each begin while the endpoint is another's, so that all wait for it, and then go on."""
    desk = Desk(office.endpoints, Poster(LOOPBACK), office.clock)
    with ThreadPoolExecutor(len(deeds)) as pool:
        with office.database.write() as connection:
            found(connection, "ep_1", lock=True)
            futures = [pool.submit(deed, desk) for deed in deeds]
            office.wait_until_held_up(len(deeds))
        return futures


def patch(**wanted: float) -> Callable[[Desk], Endpoint]:
    return lambda desk: desk.change("ep_1", wanted, origin=Origin(), reason="test")


def test_of_two_rotations_at_once_the_secrets_of_both_sign(busy: Office) -> None:
    def rotate(desk: Desk) -> Endpoint:
        return desk.rotate("ep_1", overlap=3600, origin=Origin(), reason="due")

    issued = {future.result().secret for future in at_once(busy, rotate, rotate)}
    assert set(busy.endpoints.get("ep_1").secrets(busy.clock())) == issued


def test_two_changes_of_times_at_once_are_both_made(busy: Office) -> None:
    for future in at_once(busy, patch(group_wait=5.0), patch(group_interval=100.0)):
        future.result()
    timing = busy.endpoints.get("ep_1").timing
    assert (timing.group_wait, timing.group_interval, timing.repeat_interval) == (5.0, 100.0, 3600.0)


def test_two_changes_at_once_break_no_rule_that_each_keeps(busy: Office) -> None:
    errors = [future.exception() for future in at_once(busy, patch(group_interval=600.0), patch(repeat_interval=300.0))]
    assert sorted(type(error) for error in errors if error) == [WebhookRuleError]
    timing = busy.endpoints.get("ep_1").timing
    assert (timing.group_interval, timing.repeat_interval) in [(600.0, 3600.0), (60.0, 300.0)]


def test_a_name_that_another_takes_at_the_same_time_is_taken(busy: Office) -> None:
    busy.add("https://example.com/other", id="ep_2", name="other")
    renamed: Mapping[str, Any] = {"name": "wanted"}
    deeds: list[Callable[[], object]] = [
        lambda: busy.add("https://example.com/new", id="ep_3", name="wanted"),
        lambda: busy.endpoints.change("ep_2", lambda _: renamed, now=busy.clock(), origin=Origin(), reason="test"),
    ]
    with ThreadPoolExecutor(len(deeds)) as pool, busy.database.write() as connection:
        connection.exec_driver_sql("UPDATE endpoints SET name = 'wanted' WHERE id = 'ep_1'")
        futures = [pool.submit(deed) for deed in deeds]
        busy.wait_until_held_up(len(deeds))
    for future in futures:
        with pytest.raises(EndpointConflictError, match="name: there is a webhook 'wanted'; give another name"):
            future.result()
    assert {one.id: one.name for one in busy.endpoints.all()} == {"ep_1": "wanted", "ep_2": "other"}
