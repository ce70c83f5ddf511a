"""Every shape, against the limits and the escapes of whoever receives it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from alerting import START, alert, over

from trimtab.api.notify.notification import Notification, Reason
from trimtab.api.notify.shapes import SHAPES
from trimtab.api.notify.shapes.shape import rendered
from trimtab.storage.alert import Alert, AlertKind, Severity

LINK = "https://trimtab.corp/?job=run&x=1"
HOSTILE = '@everyone <!channel> <@U1> & "*_`~ [x](https://evil) \u202e\x00 \ud800 ' + "é" * 5000
HOSTILE_ALERT = alert(
    "nonfinite",
    summary=HOSTILE,
    evidence={f"{HOSTILE[:40]}{number}": float(number) for number in range(200)},
    notes={"likely cause": HOSTILE, "by": HOSTILE},
    acknowledged_by=HOSTILE,
)


def notification(*alerts: Alert, reason: Reason = Reason.NEW, **changes: Any) -> Notification:
    made = Notification(
        receiver="team",
        job="run",
        reason=reason,
        alerts=alerts,
        news=frozenset(one.fingerprint for one in alerts),
        at=START + 60,
        repeat_interval=60.0,
        link=LINK,
    )
    return replace(made, **changes)


def bodies(shape: str, *alerts: Alert, **changes: Any) -> list[Any]:
    return [message.body for message in rendered(SHAPES[shape], notification(*alerts, **changes))]


def body(shape: str, *alerts: Alert, **changes: Any) -> Any:
    (only,) = bodies(shape, *alerts, **changes)
    return only


def many(number: int) -> Sequence[Alert]:
    return [replace(HOSTILE_ALERT, name=f"d{one}", fingerprint=f"{one:032x}") for one in range(number)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", [1, 3, 60])
def test_whatever_users_wrote_can_be_sent(shape: str, number: int) -> None:
    for each in bodies(shape, *many(number)):
        text = json.dumps(each, allow_nan=False, ensure_ascii=False)
        text.encode()  # no lone surrogate is left
        assert "\x00" not in text
        assert "\u202e" not in text


def test_ours_says_everything_in_plain_fields() -> None:
    told = body("trimtab", alert(evidence={"mean": 0.25, "limit": "NaN"}, notes={"cost": "a step"}), over(alert("b")))
    assert told == {
        "type": "alerts.firing",
        "timestamp": "2027-01-15T08:01:00.000Z",
        "data": {
            "job": "run",
            "reason": "new alerts added",
            "url": LINK,
            "truncated_alerts": 0,
            "alerts": [
                {
                    "fingerprint": alert().fingerprint,
                    "kind": "incident",
                    "name": "reward",
                    "status": "firing",
                    "severity": "warning",
                    "summary": "reward is wrong",
                    "attempt": 1,
                    "step": 10,
                    "starts_at": "2027-01-15T08:00:00.000Z",
                    "worsened_at": None,
                    "ends_at": None,
                    "acknowledged_by": None,
                    "evidence": {"mean": 0.25, "limit": "NaN"},
                    "notes": {"cost": "a step"},
                },
                told["data"]["alerts"][1],
            ],
        },
    }
    assert told["data"]["alerts"][1]["status"] == "resolved"
    assert told["data"]["alerts"][1]["ends_at"] == "2027-01-15T08:01:40.000Z"
    assert body("trimtab", over(alert()))["type"] == "alerts.resolved"
    assert body("trimtab", alert("x", kind=AlertKind.CHANGE))["type"] == "alerts.notice"


def test_ours_stays_short_and_says_what_it_leaves_out() -> None:
    told = body("trimtab", *many(60))
    assert len(json.dumps(told)) <= 20_000
    data = told["data"]
    assert 0 < len(data["alerts"]) == 60 - data["truncated_alerts"] < 60


def test_alertmanagers_webhook_is_version_4() -> None:
    told = body("alertmanager_webhook", alert(), over(alert("loss", severity=Severity.CRITICAL)))
    first, second = told["alerts"]
    assert {name: value for name, value in told.items() if name != "alerts"} == {
        "version": "4",
        "groupKey": '{}:{job="run"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "team",
        "notification_reason": "new alerts added",
        "groupLabels": {"job": "run"},
        "commonLabels": {"alertname": "TrimtabIncident", "job": "run", "kind": "incident"},
        "commonAnnotations": {"attempt": "1", "step": "10"},
        "externalURL": LINK,
    }
    assert first == {
        "status": "firing",
        "labels": {**told["commonLabels"], "name": "reward", "severity": "warning"},
        "annotations": {"summary": "reward is wrong", "attempt": "1", "step": "10"},
        "startsAt": "2027-01-15T08:00:00.000Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": LINK,
        "fingerprint": alert().fingerprint,
    }
    assert (second["status"], second["endsAt"]) == ("resolved", "2027-01-15T08:01:40.000Z")
    assert body("alertmanager_webhook", *many(60))["truncatedAlerts"] == 10
    assert body("alertmanager_webhook", over(alert()))["status"] == "resolved"


def test_a_push_to_alertmanager_ends_by_itself_unless_it_is_repeated() -> None:
    (pushed,) = body("alertmanager_api", alert())
    assert (pushed["startsAt"], pushed["endsAt"]) == ("2027-01-15T08:00:00.000Z", "2027-01-15T08:05:00.000Z")
    assert pushed["generatorURL"] == LINK
    (ended,) = body("alertmanager_api", over(alert()))
    assert ended["endsAt"] == "2027-01-15T08:01:40.000Z"
    assert "endsAt" not in body("alertmanager_api", alert(), repeat_interval=None)[0]


def test_a_push_of_what_has_worsened_ends_the_milder_alert_once() -> None:
    worse = alert(severity=Severity.CRITICAL, worsened_from=Severity.WARNING, worsened_at=START + 30)
    now, before = body("alertmanager_api", worse)
    assert (now["labels"]["severity"], before["labels"]["severity"]) == ("critical", "warning")
    assert before["endsAt"] == "2027-01-15T08:00:30.000Z"
    assert {**now["labels"], "severity": "warning"} == before["labels"]
    assert len(body("alertmanager_api", worse, news=frozenset())) == 1


def test_pagerduty_gets_an_event_for_each_alert_that_changed() -> None:
    fires, gone, known, tended = alert("a"), over(alert("b")), alert("c"), alert("d", acknowledged_by="ada")
    news = frozenset(one.fingerprint for one in (fires, gone, tended))
    messages = rendered(SHAPES["pagerduty"], notification(fires, gone, known, tended, news=news))
    assert [(one.body["event_action"], one.subject, one.resolved) for one in messages] == [
        ("trigger", fires.fingerprint, ()),
        ("resolve", gone.fingerprint, (gone.fingerprint,)),
        ("acknowledge", tended.fingerprint, ()),
    ]
    assert messages[0].body == {
        "event_action": "trigger",
        "dedup_key": fires.fingerprint,
        "payload": {
            "summary": "run: a: a is wrong",
            "source": "run",
            "severity": "warning",
            "timestamp": "2027-01-15T08:00:00.000Z",
            "component": "a",
            "group": "run",
            "class": "incident",
            "custom_details": {"attempt": 1, "step": 10, "evidence": {}},
        },
        "client": "trimtab",
        "client_url": LINK,
        "links": [{"href": LINK, "text": "run"}],
    }
    keyed = SHAPES["pagerduty"].keyed
    assert keyed is not None
    assert keyed(messages[0].body, "k" * 32) == {"routing_key": "k" * 32, **messages[0].body}


def test_pagerduty_keeps_to_its_limits() -> None:
    event = body("pagerduty", HOSTILE_ALERT)
    assert len(event["payload"]["summary"]) == 1024
    assert len(event["dedup_key"]) <= 255
    assert len(json.dumps(event)) < 512_000
    assert {body("pagerduty", alert(severity=one))["payload"]["severity"] for one in Severity} <= {
        "critical",
        "error",
        "warning",
        "info",
    }


def texts(value: Any) -> list[str]:
    """Every string in JSON data."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("number", [1, 8, 60])
def test_slack_keeps_to_its_limits_and_mentions_nobody(number: int) -> None:
    told = body("slack", *many(number))
    blocks = told["blocks"]
    assert len(blocks) <= 50
    assert len(blocks[0]["text"]["text"]) <= 150
    assert all(len(text) <= 3000 for text in texts(blocks))
    assert sum(len(text) for text in texts(blocks)) <= 13_000
    written = "".join(texts(told)).replace(f"<{LINK.replace('&', '&amp;')}|run>", "")
    assert "<" not in written
    assert ">" not in written
    assert "&amp;" in written
    assert "&" not in written.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")


def test_slack_says_what_a_person_needs() -> None:
    told = body(
        "slack",
        alert(severity=Severity.CRITICAL, notes={"proposed": "stop"}, evidence={"mean": 0.12345678}),
        over(alert("b")),
    )
    assert told["text"] == "run: 1 firing, 1 resolved"
    header, first, more, second, closing = told["blocks"]
    assert header["text"] == {"type": "plain_text", "text": "run: 1 firing, 1 resolved", "emoji": False}
    assert first["text"]["text"] == ":red_circle: *reward* critical\nreward is wrong"
    assert more["elements"][0]["text"] == "proposed: stop\nmean = 0.1235"
    assert second["text"]["text"] == ":white_check_mark: *b* resolved\nb is wrong"
    assert closing["text"]["text"] == "<https://trimtab.corp/?job=run&amp;x=1|run>"


@pytest.mark.parametrize("number", [1, 5, 60])
def test_discord_keeps_to_its_limits_and_mentions_nobody(number: int) -> None:
    told = body("discord", *many(number))
    assert told["allowed_mentions"] == {"parse": []}
    assert len(told["content"]) <= 2000
    embeds = told["embeds"]
    assert 0 < len(embeds) <= 10
    counted = 0
    for embed in embeds:
        fields = embed["fields"]
        assert len(embed["title"]) <= 256
        assert len(embed["description"]) <= 4096
        assert all(len(field["name"]) <= 256 and len(field["value"]) <= 1024 for field in fields)
        counted += len(embed["title"]) + len(embed["description"])
        counted += sum(len(field["name"]) + len(field["value"]) for field in fields)
    assert counted <= 6000
    assert "\\@everyone" in embeds[0]["description"]
    assert ("are not shown" in told["content"]) is (number > 5)


def test_headlines_say_what_it_is() -> None:
    assert body("slack", alert(), reason=Reason.REPEAT)["text"] == "run: 1 firing (still)"
    assert body("slack", alert(), reason=Reason.TEST)["text"] == "run: a test"
    assert body("slack", alert("x", kind=AlertKind.CHANGE))["text"] == "run: what was changed"
    assert body("slack", over(alert()))["text"] == "run: 1 resolved"


def test_an_alert_that_cannot_be_put_into_words_takes_no_other_with_it() -> None:
    broken = alert("broken", evidence={"odd": object()}, notes={"cost": "x"})
    for shape in SHAPES:
        told = json.dumps(bodies(shape, alert("fine", notes={"cost": "y"}), broken))
        assert "fine is wrong" in told
        assert "broken is wrong" in told


def test_the_jobs_name_and_the_link_are_left_out_where_they_are_not_known() -> None:
    assert body("trimtab", alert(), link="")["data"]["url"] is None
    assert "url" not in body("discord", alert(), link="")["embeds"][0]
    assert "client_url" not in body("pagerduty", alert(), link="")
    assert len(body("slack", alert(), link="")["blocks"]) == 2
