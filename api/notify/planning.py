"""From a group that is due to the messages that it takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trimtab.api.notify.grouping import decided
from trimtab.api.notify.notification import Notification, Reason
from trimtab.api.notify.schedule import TRIES
from trimtab.api.notify.shapes import SHAPES
from trimtab.api.notify.shapes.shape import Message, Shape, rendered
from trimtab.api.notify.signing import new_id
from trimtab.storage.alert import Alert, AlertKind, AlertPhase, Severity, fingerprint
from trimtab.storage.delivery import NewMessage
from trimtab.storage.endpoints import Endpoint
from trimtab.storage.groups import Due, Planned

TEST_JOB = "trimtab-test"
TEST_SUMMARY = "this is a test: alerts reach you"


def planned(due: Due, now: float, *, link: Callable[[str], str], shapes: Mapping[str, Shape] = SHAPES) -> Planned:
    """What to send, and what the endpoint knows then. `link` is where a job is looked at, or empty."""
    shape = shapes[due.endpoint.shape]
    found = decided(due, now, acknowledges=shape.acknowledges, always_repeats=shape.always_repeats)
    told: list[NewMessage] = []

    def tell(reason: Reason, alerts: Sequence[Alert], news: frozenset[str]) -> None:
        notification = _notification(due.endpoint, due.job, reason, alerts, news, now, link)
        told.extend(_message(message, reason) for message in rendered(shape, notification))

    if found.reason is not Reason.NONE and (found.firing or found.resolved):
        tell(found.reason, (*found.firing, *found.resolved), found.news)
    if found.notices:
        tell(Reason.NOTICE, found.notices, frozenset(notice.fingerprint for notice in found.notices))
    return Planned(told=found.told, told_at=found.told_at, due_at=found.due_at, messages=tuple(told))


def trial(endpoint: Endpoint, now: float, *, link: Callable[[str], str]) -> list[NewMessage]:
    """A test alert that fires, and where it would stay open at the receiver, its end. They are tried once."""
    shape = SHAPES[endpoint.shape]
    alert = Alert(
        job=TEST_JOB,
        fingerprint=fingerprint(TEST_JOB, AlertKind.INCIDENT, endpoint.id),
        kind=AlertKind.INCIDENT,
        name="test",
        severity=Severity.INFO,
        phase=AlertPhase.FIRING,
        summary=TEST_SUMMARY,
        attempt=0,
        step=0,
        starts_at=now,
    )
    phases = [AlertPhase.FIRING] + [AlertPhase.RESOLVED] * shape.stateful
    messages = []
    for phase in phases:
        one = replace(alert, phase=phase, ends_at=now if phase is AlertPhase.RESOLVED else None)
        news = frozenset({one.fingerprint})
        notification = _notification(endpoint, TEST_JOB, Reason.TEST, [one], news, now, link)
        messages += [_message(each, Reason.TEST, tries=1) for each in rendered(shape, notification)]
    return messages


def _notification(
    endpoint: Endpoint,
    job: str,
    reason: Reason,
    alerts: Sequence[Alert],
    news: frozenset[str],
    now: float,
    link: Callable[[str], str],
) -> Notification:
    return Notification(
        receiver=endpoint.name,
        job=job,
        reason=reason,
        alerts=tuple(alerts),
        news=news,
        at=now,
        repeat_interval=endpoint.timing.repeat_interval,
        link=link(job),
    )


def _message(message: Message, reason: Reason, *, tries: int = TRIES) -> NewMessage:
    """What nothing newer can take the place of, a notice or a test, is a subject of its own."""
    message_id = new_id()
    alone = reason in (Reason.NOTICE, Reason.TEST)
    return NewMessage(
        message_id=message_id,
        subject=message_id if alone else message.subject,
        reason=reason.value,
        body=json.dumps(message.body, allow_nan=False),
        resolved=message.resolved,
        tries=tries,
    )
