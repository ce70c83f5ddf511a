"""What receivers do, and what newer messages do to older ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from alerting import FIRING, LOOPBACK, PROMPT, RESOLVED, Office, event, firing, resolved, told
from receivers import Answer, Receiver, dribbled, held, huge, reply

from trimtab.api.notify.posting import Poster
from trimtab.api.notify.shapes import SHAPES
from trimtab.storage.delivery import DeliveryStateError, Status
from trimtab.storage.values import Origin


def test_a_receiver_that_is_down_is_asked_seven_times_and_then_a_person_decides(office: Office) -> None:
    with Receiver() as gone:
        url = gone.url
    office.add(url)
    office.happen(firing())
    for delay in (0, 5, 30, 120, 600, 1800):
        office.work(seconds=delay)
        assert office.log()[0].status is Status.PENDING
    office.work(seconds=7200)
    (dead,) = office.log()
    assert (dead.status, dead.attempts, dead.answer) == (Status.DEAD, 7, None)
    assert dead.error.startswith("it cannot be reached: ")
    assert office.attempts == [("trimtab", "retried")] * 6 + [("trimtab", "dead")]
    office.work(seconds=86400)
    assert office.log() == [dead]


def test_what_died_is_sent_again_when_a_person_says_so(office: Office) -> None:
    with Receiver(reply(400, b"no <such> thing")) as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        (dead,) = office.log()
        assert (dead.status, dead.answer, dead.error) == (Status.DEAD, 400, "400 Bad Request: no <such> thing")
        office.deliveries.retry(dead.message_id, office.clock(), origin=Origin(), reason="mended")
        office.work()
    assert [one.headers["webhook-id"] for one in receiver.received] == [dead.message_id] * 2
    assert office.statuses() == [(Status.DELIVERED, 1, 200)]


def test_what_died_is_not_sent_again_once_something_newer_was_said(office: Office) -> None:
    with Receiver(reply(400)) as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        office.happen(resolved())
        office.work(seconds=60)
        dead, newer = office.log()
        with pytest.raises(DeliveryStateError, match=rf"id: '{newer.message_id}' is newer than '{dead.message_id}'"):
            office.deliveries.retry(dead.message_id, office.clock(), origin=Origin(), reason="mended")
        office.work()
    assert told(receiver.received) == [FIRING, RESOLVED]
    assert office.statuses() == [(Status.DEAD, 1, 400), (Status.DELIVERED, 1, 200)]


@pytest.mark.parametrize("status", [500, 502, 503, 408, 302])
def test_what_may_pass_is_tried_again_under_the_same_id(office: Office, status: int) -> None:
    with Receiver(reply(status, location="http://169.254.169.254/latest/")) as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        assert office.statuses() == [(Status.PENDING, 1, status)]
        office.work(seconds=4.9)
        assert len(receiver.received) == 1
        office.work(seconds=0.1)
    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert int(second.headers["webhook-timestamp"]) == int(first.headers["webhook-timestamp"]) + 5
    assert office.statuses() == [(Status.DELIVERED, 2, 200)]


def test_whoever_says_when_to_come_back_is_not_asked_sooner_about_anything(office: Office) -> None:
    with Receiver(reply(429, retry_after="100")) as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        office.happen(firing(), job="other")
        office.work(seconds=99)
        assert len(receiver.received) == 1
        office.work(seconds=1)
    assert [one.json["data"]["job"] for one in receiver.received] == ["run", "run", "other"]


def test_whoever_is_gone_is_not_asked_again(office: Office) -> None:
    with Receiver(reply(410)) as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        office.happen(firing(), job="other")
        office.work(seconds=7200)
        assert len(receiver.received) == 1
        found = office.endpoints.get("ep_1")
        assert (found.enabled, found.disabled_reason) == (False, "the receiver says that it is gone (410)")
        assert office.statuses() == [(Status.DEAD, 1, 410)]
        office.endpoints.change("ep_1", lambda _: {"enabled": True}, now=office.clock(), origin=Origin(), reason="back")
        office.work()
        assert office.endpoints.get("ep_1").disabled_reason == ""
    assert sorted(one.json["data"]["job"] for one in receiver.received[1:]) == ["other", "run"]


def test_an_endless_answer_is_not_read_to_its_end(office: Office) -> None:
    with Receiver(huge) as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
    assert office.statuses() == [(Status.DELIVERED, 1, 200)]


@pytest.mark.parametrize("slow", [held, dribbled])
def test_a_slow_receiver_is_given_up_and_holds_up_nobody(
    office: Office, slow: Callable[[threading.Event], Answer]
) -> None:
    """One of them never answers, the other never stops to."""
    done = threading.Event()
    with Receiver(slow(done)) as slow_one, Receiver() as quick:
        office.add(slow_one)
        office.add(quick, id="ep_2", name="quick")
        office.happen(firing())

        async def work() -> None:
            async with Poster(replace(LOOPBACK, total_s=1.0)) as poster:
                worker = office.worker(poster)
                await worker.turn()
                await asyncio.to_thread(quick.wait_for, 1)
                assert office.log()[0].status is Status.PENDING  # the slow one is still being waited for
                await worker.landed()

        asyncio.run(work())
        done.set()
    (given_up,) = office.log()
    assert (given_up.status, given_up.attempts, given_up.error) == (Status.PENDING, 1, "no answer within 1 s")


def test_one_request_at_a_time_goes_to_one_endpoint(office: Office) -> None:
    done = threading.Event()
    with Receiver(held(done)) as receiver:
        office.add(receiver)
        for job in ("a", "b", "c"):
            office.happen(firing(), job=job)

        async def work() -> None:
            async with Poster(LOOPBACK) as poster:
                worker = office.worker(poster)
                for _ in range(3):
                    await worker.turn()
                while not receiver.received:
                    await asyncio.sleep(0.01)
                assert len(receiver.received) == 1
                done.set()
                await worker.landed()
                await worker.settle()

        asyncio.run(work())
    assert [one.json["data"]["job"] for one in receiver.received] == ["a", "b", "c"]


def test_a_message_that_did_not_arrive_gives_way_to_a_newer_one(office: Office) -> None:
    with Receiver(reply(500), reply(500)) as receiver:
        office.add(receiver, timing=replace(PROMPT, group_interval=1.0))
        office.happen(firing())
        office.work()
        office.happen(firing("loss"))
        office.work(seconds=2)
        assert [one.status for one in office.log()] == [Status.SUPERSEDED, Status.PENDING]
        office.work(seconds=5)
    assert told(receiver.received)[-1] == ("alerts.firing", [("loss", "firing"), ("reward", "firing")])
    assert len(receiver.received) == 3


def test_a_resolution_that_did_not_arrive_is_in_the_newer_message(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver, timing=replace(PROMPT, group_interval=1.0))
        office.happen(firing(), firing("loss"))
        office.work()
        receiver.answers = [reply(500)]
        office.happen(resolved())
        office.work(seconds=2)
        office.happen(resolved("loss"))
        office.work(seconds=2)
    assert told(receiver.received)[-1] == ("alerts.resolved", [("loss", "resolved"), ("reward", "resolved")])


def test_pagerduty_hears_of_each_incident_in_its_order(office: Office) -> None:
    with Receiver(reply(500), reply(202)) as receiver:
        receiver.default = reply(202)
        office.add(receiver, shape="pagerduty", key="k" * 32, timing=SHAPES["pagerduty"].timing)
        office.happen(firing(), firing("loss"))
        office.work(seconds=10)
        office.happen(resolved())
        office.work(seconds=10)
        office.happen(event("acknowledged", fingerprint="run/loss", issuer="ada"))
        office.work(seconds=10)
        office.work(seconds=3600)
    actions = [(one.json["event_action"], one.json["payload"]["component"]) for one in receiver.received]
    assert actions == [
        ("trigger", "loss"),
        ("trigger", "reward"),
        ("trigger", "loss"),  # five seconds after it failed, and before what came after it
        ("resolve", "reward"),
        ("acknowledge", "loss"),
    ]
    assert {one.json["routing_key"] for one in receiver.received} == {"k" * 32}
    assert not any("k" * 32 in one.body for one in office.log())


def test_a_retry_a_rest_and_a_lease_of_a_clock_that_was_set_back_hold_nothing_up(office: Office) -> None:
    with Receiver(reply(429, retry_after="7200")) as receiver:
        office.add(receiver)
        office.clock.pass_(86400)
        office.happen(firing())
        office.work()
        (claimed,) = office.deliveries.claim(office.clock() + 7200, lease="dead", until=office.clock() + 7230)
        assert claimed.delivery.attempts == 2
        office.work(seconds=-86400)
    assert len(receiver.received) == 2
    assert office.statuses() == [(Status.DELIVERED, 3, 200)]
