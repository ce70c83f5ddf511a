"""From an incident to its receiver: who is told of what, and when."""

from __future__ import annotations

import base64
from dataclasses import replace

from alerting import FIRING, PROMPT, RESOLVED, SECRET, Office, event, firing, resolved, told
from receivers import Receiver
from standardwebhooks.webhooks import hmac_data

from trimtab.api.notify.signing import new_secret
from trimtab.storage.alert import Severity
from trimtab.storage.archive import Archive
from trimtab.storage.delivery import Status
from trimtab.storage.values import Origin


def test_what_fires_and_what_is_resolved_is_told_once_each(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        office.work()
        office.happen(resolved())
        office.work(seconds=60)
        office.work(seconds=3600)
    assert told(receiver.received) == [FIRING, RESOLVED]
    assert office.statuses() == [(Status.DELIVERED, 1, 200)] * 2
    assert office.attempts == [("trimtab", "delivered")] * 2


def test_it_is_signed_so_that_the_receiver_can_tell_who_sent_it(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
    (request,) = receiver.received
    stamp = f"{request.headers['webhook-id']}.{int(office.clock())}.".encode()
    assert request.headers["webhook-timestamp"] == str(int(office.clock()))
    signature = base64_of(SECRET, stamp + request.body)
    assert request.headers["webhook-signature"] == f"v1,{signature}"
    assert request.headers["content-type"] == "application/json"


def base64_of(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return base64.b64encode(hmac_data(key, content)).decode()


def test_while_a_secret_is_replaced_both_sign(office: Office) -> None:
    with Receiver() as receiver:
        now = office.clock()
        office.add(receiver, secret=new_secret(), previous_secret=SECRET, previous_until=now + 10)
        office.happen(firing())
        office.work()
        office.happen(resolved())
        office.work(seconds=60)
    assert [len(one.headers["webhook-signature"].split(" ")) for one in receiver.received] == [2, 1]


def test_what_is_over_before_anybody_was_told_is_not_told(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver, timing=replace(PROMPT, group_wait=30.0))
        office.happen(firing())
        office.work(seconds=29)
        office.happen(resolved())
        office.work(seconds=3600)
    assert receiver.received == []


def test_what_goes_together_comes_together(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver, timing=replace(PROMPT, group_wait=30.0))
        office.happen(firing())
        office.work(seconds=20)
        office.happen(firing("loss", severity="critical"))
        office.work(seconds=10)
    assert told(receiver.received) == [("alerts.firing", [("loss", "firing"), ("reward", "firing")])]


def test_what_comes_and_goes_within_the_interval_is_told_once(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        for _ in range(5):
            office.happen(resolved())
            office.work(seconds=5)
            office.happen(firing())
            office.work(seconds=5)
        office.work(seconds=60)
        assert told(receiver.received) == [FIRING]
        office.happen(resolved())
        office.work(seconds=60)
    assert told(receiver.received) == [FIRING, RESOLVED]


def test_what_worsens_is_told_again(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        worse = {"detector": "reward", "before": "warn", "after": "critical", "evidence": {}}
        office.happen(event("verdict_changed", "worse", **worse))
        office.work(seconds=60)
    severities = [one.json["data"]["alerts"][0]["severity"] for one in receiver.received]
    assert severities == ["warning", "critical"]
    first, second = (one.json["data"]["alerts"][0] for one in receiver.received)
    assert first["starts_at"] == second["starts_at"]


def test_people_are_reminded_as_long_as_the_job_reports(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        office.clock.pass_(10)
        office.report()
        office.work(seconds=3590)
        assert told(receiver.received) == [FIRING] * 2
        office.work(seconds=7200)
    assert len(receiver.received) == 2


def test_a_silence_keeps_quiet_and_the_resolution_comes_all_the_same(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        office.happen(event("silenced", fingerprint="run/reward"))
        office.clock.pass_(10)
        office.report()
        office.work(seconds=7200)
        assert told(receiver.received) == [FIRING]
        office.happen(firing())  # the silence is over
        office.work(seconds=60)
        assert told(receiver.received) == [FIRING] * 2
        office.happen(event("silenced", fingerprint="run/reward"), resolved())
        office.work(seconds=60)
    assert told(receiver.received) == [FIRING, FIRING, RESOLVED]


def test_a_job_that_is_archived_is_over(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver)
        office.happen(firing())
        office.work()
        Archive(office.database).put_away("run", at=office.clock(), origin=Origin(), issuer="ada", reason="done")
        office.work(seconds=60)
    assert told(receiver.received) == [FIRING, RESOLVED]


def test_a_notice_is_told_beside_what_fires(office: Office) -> None:
    change = {"generation": 1, "issuer": "agent", "remedy": "centering", "direction": "tighten"}
    with Receiver() as receiver:
        office.add(receiver)
        office.happen(firing(), event("controls_changed", "reward fell", **change))
        office.work()
        office.work(seconds=7200)
    assert told(receiver.received) == [FIRING, ("alerts.notice", [("centering", "firing")])]


def test_each_endpoint_is_told_of_its_own(office: Office) -> None:
    with Receiver() as all_of_it, Receiver() as worst, Receiver() as others:
        office.add(all_of_it)
        office.add(worst, id="ep_2", name="worst", severity=Severity.CRITICAL)
        office.add(others, id="ep_3", name="others", jobs=("prod-*",))
        office.happen(firing())
        office.happen(firing(severity="critical"), job="prod-7")
        office.work()
    assert sorted(one.json["data"]["job"] for one in all_of_it.received) == ["prod-7", "run"]
    assert [one.json["data"]["job"] for one in worst.received] == ["prod-7"]
    assert [one.json["data"]["job"] for one in others.received] == ["prod-7"]


def test_whoever_is_added_later_is_told_of_what_fires(office: Office) -> None:
    office.happen(firing())
    office.work()
    with Receiver() as receiver:
        office.add(receiver)
        office.work()
    assert told(receiver.received) == [FIRING]


def test_a_clock_that_is_set_back_holds_nothing_up(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver)
        office.clock.pass_(86400)
        office.happen(firing())
        office.work()
        office.clock.pass_(-86400)
        office.happen(firing("entropy", severity="critical"))
        office.work(seconds=60)
    assert told(receiver.received) == [FIRING, ("alerts.firing", [("entropy", "firing"), ("reward", "firing")])]


def test_what_waits_when_the_clock_is_set_back_is_told_without_anything_new(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver, timing=replace(PROMPT, group_wait=30.0))
        office.clock.pass_(86400)
        office.happen(firing())
        office.work()
        assert receiver.received == []
        office.work(seconds=-86400)
    assert told(receiver.received) == [FIRING]


def test_an_event_of_a_clock_ahead_is_told_group_wait_from_now(office: Office) -> None:
    with Receiver() as receiver:
        office.add(receiver, timing=replace(PROMPT, group_wait=30.0))
        office.work()
        office.clock.pass_(500)
        office.happen(firing())
        office.work(seconds=-500)
        assert receiver.received == []
        office.work(seconds=30)
    assert told(receiver.received) == [FIRING]
