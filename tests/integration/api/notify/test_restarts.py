"""What happens to the service, or to others of its kind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace

from alerting import FIRING, LOOPBACK, RESOLVED, Office, event, firing, resolved, told
from postgres import PostgresServer
from receivers import Handler, Receiver, held, reply
from sqlalchemy.exc import OperationalError

from trimtab.api.notify.notification import Notification
from trimtab.api.notify.posting import Poster
from trimtab.api.notify.shapes import SHAPES
from trimtab.api.notify.worker import KEEP_DELIVERED_S, KEEP_S, LEASE_S
from trimtab.storage.delivery import Settlement, Status
from trimtab.storage.endpoints import found, hold_pending


def test_a_restart_between_fire_and_resolve_loses_neither(database_url: str) -> None:
    with Receiver() as receiver:
        first = Office(database_url)
        first.add(receiver)
        first.happen(firing())
        first.work()
        first.happen(resolved())
        first.close()  # before the worker knew
        second = Office(database_url, first.clock)
        second.work(seconds=60)
        second.close()
    assert told(receiver.received) == [FIRING, RESOLVED]


def test_a_worker_that_dies_while_it_sends_leaves_the_message_to_the_next(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver)
        office.happen(firing())
        office.happen(firing(), job="other")
        asyncio.run(_planned(office))
        now = office.clock()
        (claim,) = office.deliveries.claim(now, lease="dead", until=now + LEASE_S)  # and that was the last of it
        office.work(seconds=LEASE_S - 1)
        assert receiver.received == []
        office.work(seconds=1)
        assert receiver.received[0].headers["webhook-id"] == claim.delivery.message_id
        assert [one.json["data"]["job"] for one in receiver.received] == ["run", "other"]
        late = Settlement(status=Status.PENDING, answer=None, error="it is not dead after all", next_at=now)
        office.deliveries.settle(claim, late, office.clock())
    assert office.statuses() == [(Status.DELIVERED, 2, 200), (Status.DELIVERED, 1, 200)]


async def _planned(office: Office) -> None:
    """Have messages made, and none sent."""
    async with Poster(LOOPBACK) as poster:
        await office.worker(poster).plan()


def test_at_the_end_what_is_not_answered_in_time_waits_for_the_next_start(office: Office) -> None:
    done = threading.Event()
    with Receiver(held(done)) as slow, Receiver() as quick:
        office.add(slow)
        office.add(quick, id="ep_2", name="quick")
        office.happen(firing())

        async def serve() -> None:
            stop = asyncio.Event()
            running = asyncio.create_task(office.worker(Poster(LOOPBACK), drain_s=0.1).run(stop))
            while not (slow.received and quick.received):
                await asyncio.sleep(0.01)
            stop.set()
            await running

        asyncio.run(serve())
        assert office.statuses() == [(Status.PENDING, 0, None)]
        done.set()
        office.work()
    assert told(quick.received) == [FIRING]
    assert [one.headers["webhook-id"] for one in slow.received] == [office.log()[0].message_id] * 2
    assert office.statuses() == [(Status.DELIVERED, 1, 200)]


def test_it_goes_on_by_itself_until_it_is_told_to_stop(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver)

        async def serve() -> None:
            stop = asyncio.Event()
            worker = office.worker(Poster(LOOPBACK))
            running = asyncio.create_task(worker.run(stop))
            await asyncio.to_thread(office.happen, firing())
            worker.wake()
            while not receiver.received:
                await asyncio.sleep(0.01)
            stop.set()
            await running

        asyncio.run(serve())
    assert told(receiver.received) == [FIRING]


def test_a_database_that_goes_away_and_comes_back_is_waited_for(postgres: PostgresServer) -> None:
    with postgres.database() as url, Receiver() as receiver:
        office = Office(url)
        office.add(receiver)

        async def serve() -> None:
            stop = asyncio.Event()
            running = asyncio.create_task(office.worker(Poster(LOOPBACK)).run(stop))
            await asyncio.to_thread(postgres.stop)
            await asyncio.sleep(1.5)  # longer than the worker waits before it looks again
            assert not running.done()
            postgres.start()  # not in a thread, with whose end it would end
            while not receiver.received:
                with suppress(OperationalError):  # connections of the pool are found dead one after another
                    await asyncio.to_thread(office.happen, firing())
                await asyncio.sleep(0.1)
            stop.set()
            await running

        asyncio.run(serve())
        office.close()
    assert told(receiver.received) == [FIRING]


def test_a_group_that_cannot_be_put_into_words_holds_up_no_other(office: Office) -> None:
    def broken(_notification: Notification, _parts: object) -> object:
        raise ZeroDivisionError

    shapes = {**SHAPES, "slack": replace(SHAPES["slack"], whole=broken)}
    office = Office(str(office.database.engine.url.render_as_string(hide_password=False)), office.clock, shapes=shapes)
    with Receiver() as receiver:
        office.add(receiver, shape="slack")
        office.add(receiver, id="ep_2", name="other")
        office.happen(firing())
        office.work()
    assert told(receiver.received) == [FIRING]
    assert office.log() == []
    office.close()


def test_two_workers_on_one_database_send_everything_once_and_nothing_twice_at_once(postgres: PostgresServer) -> None:
    busy, most, lock = Counter[str](), Counter[str](), threading.Lock()

    def counted(handler: Handler) -> None:
        with lock:
            busy[handler.path] += 1
            most[handler.path] = max(most[handler.path], busy[handler.path])
        time.sleep(0.002)
        with lock:
            busy[handler.path] -= 1
        reply(200)(handler)

    endpoints, jobs = [f"ep_{n}" for n in range(8)], [f"run-{n}" for n in range(12)]
    with postgres.database() as url, Receiver() as receiver:
        receiver.default = counted
        offices = [Office(url)]
        offices.append(Office(url, offices[0].clock))
        for name in endpoints:
            offices[0].add(f"{receiver.url}/{name}", id=name, name=name)
        for job in jobs:
            offices[0].happen(firing(), job=job)
        gate, everything = threading.Barrier(2), len(endpoints) * len(jobs)

        async def work(office: Office) -> None:
            async with Poster(LOOPBACK) as poster:
                worker = office.worker(poster)
                gate.wait()
                while len(receiver.received) < everything:
                    await worker.turn()
                    await worker.landed()

        threads = [threading.Thread(target=asyncio.run, args=(work(office),)) for office in offices]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        attempts = [len(office.attempts) for office in offices]
        for office in offices:
            office.close()
    sent = Counter((one.path.rpartition("/")[2], one.json["data"]["job"]) for one in receiver.received)
    assert sent == {(name, job): 1 for name in endpoints for job in jobs}
    assert set(most.values()) == {1}
    assert sum(attempts) == everything
    assert all(attempts)  # both took part


def test_whoever_finds_an_endpoint_gone_waits_for_whoever_changes_it(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        office = Office(url)
        office.add("https://example.com/hook")
        office.happen(firing())
        asyncio.run(_planned(office))
        now = office.clock()
        (claim,) = office.deliveries.claim(now, lease="mine", until=now + LEASE_S)
        gone = Settlement(status=Status.DEAD, answer=410, error="it is gone", disable="it is gone")
        settling = threading.Thread(target=office.deliveries.settle, args=(claim, gone, now))
        with office.database.write() as connection:  # a person's change takes the endpoint, then its messages
            found(connection, "ep_1", lock=True)
            settling.start()
            office.wait_until_held_up()
            hold_pending(connection, "ep_1")
        settling.join()
        assert not office.endpoints.get("ep_1").enabled
        assert office.statuses() == [(Status.DEAD, 1, 410)]
        office.close()


def test_what_was_settled_long_ago_is_forgotten(office: Office) -> None:
    with Receiver(reply(400)) as receiver:
        office.add(receiver)
        office.happen(firing(), event("killed", issuer="ada"))
        office.work()
        assert [one.status for one in office.log()] == [Status.DEAD, Status.DELIVERED]
        office.clock.pass_(KEEP_DELIVERED_S + 1)
        asyncio.run(_pruned(office))
        assert [one.status for one in office.log()] == [Status.DEAD]
        office.clock.pass_(KEEP_S)
        asyncio.run(_pruned(office))
    assert office.log() == []


async def _pruned(office: Office) -> None:
    async with Poster(LOOPBACK) as poster:
        await office.worker(poster).prune()
