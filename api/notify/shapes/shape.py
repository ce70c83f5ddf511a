"""What a shape is: the words and the form in which one kind of receiver is told."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab.api.notify.notification import Notification
from trimtab.api.notify.text import cut
from trimtab.storage.alert import Alert, AlertKind, AlertPhase, Severity
from trimtab.storage.endpoints import Timing

LASTING = tuple(kind for kind in AlertKind if kind.lasts)
"""What a receiver can be told of that knows no notices."""
CHAT_TIMING = Timing(group_wait=10.0, group_interval=60.0, repeat_interval=12 * 3600.0)
"""Steps take seconds to minutes and what goes together fires within a step or two, so people hear of it sooner than of
a web service's alerts; runs take days, so they are reminded of it less often."""
PLAIN_LIMIT = 500

_log = logging.getLogger("trimtab.notify")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One request's body."""

    subject: str
    """What it is about: a newer message on the same subject takes its place."""
    body: Any
    """Plain JSON data, without the endpoint's key."""
    resolved: tuple[str, ...] = ()
    """Fingerprints that it says are resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of receiver."""

    each: Callable[[Notification, Alert], Any]
    """What is said of one alert: plain JSON data."""
    whole: Callable[[Notification, Sequence[Any]], Any] | None
    """The body that these make up; None where every alert is a request of its own."""
    timing: Timing
    severity: Severity = Severity.WARNING
    """The least that it is told of, unless the endpoint says otherwise."""
    kinds: tuple[AlertKind, ...] = tuple(AlertKind)
    """What it can be told of."""
    url: str = ""
    """Where it is reached, unless the endpoint says otherwise; empty where only the endpoint can know."""
    keyed: Callable[[Any, str], Any] | None = None
    """Puts the endpoint's key into a body; None where it has none."""
    signed: bool = False
    """Whether receivers can check who sent it."""
    stateful: bool = False
    """Whether what fires stays open at the receiver until it is told that it is resolved."""
    acknowledges: bool = False
    """Whether it can be told that somebody looks after an alert."""
    always_repeats: bool = False
    """Whether it takes for resolved what is not repeated."""


def rendered(shape: Shape, notification: Notification) -> list[Message]:
    """The messages that a notification takes. An alert that cannot be put into words is told plainly, and takes none of
    the others with it."""
    if shape.whole is None:
        changed = [alert for alert in notification.alerts if alert.fingerprint in notification.news]
        return [
            Message(subject=alert.fingerprint, body=_said(shape, notification, alert), resolved=_resolved([alert]))
            for alert in changed
        ]
    parts = [_said(shape, notification, alert) for alert in notification.alerts]
    body = shape.whole(notification, parts)
    return [Message(subject="", body=body, resolved=_resolved(notification.alerts))]


def plain(alert: Alert) -> Alert:
    """The alert without anything that is not needed, in letters that every receiver knows."""
    summary = cut(alert.summary, PLAIN_LIMIT).encode("ascii", "replace").decode()
    return replace(alert, summary=summary, evidence={}, notes={}, acknowledged_by=None)


def _said(shape: Shape, notification: Notification, alert: Alert) -> Any:
    try:
        said = shape.each(notification, alert)
        json.dumps(said, allow_nan=False)
    except Exception:
        _log.exception("alert %s of job %s is told plainly to %s", alert.name, alert.job, notification.receiver)
        return shape.each(notification, plain(alert))
    return said


def _resolved(alerts: Sequence[Alert]) -> tuple[str, ...]:
    return tuple(alert.fingerprint for alert in alerts if alert.phase is AlertPhase.RESOLVED)
