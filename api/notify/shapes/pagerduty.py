"""PagerDuty's Events API v2: an event for each alert, under its fingerprint, so that its resolution closes it."""

from __future__ import annotations

from typing import Any

from trimtab.api.notify.notification import Notification, rfc3339
from trimtab.api.notify.shapes.shape import LASTING, Shape
from trimtab.api.notify.text import clean, cut
from trimtab.storage.alert import Alert, AlertPhase
from trimtab.storage.endpoints import Timing

URL = "https://events.pagerduty.com/v2/enqueue"
TIMING = Timing(group_wait=10.0, group_interval=10.0, repeat_interval=None)
"""PagerDuty reminds people by itself."""
SUMMARY = 1024
"""Its limit, in characters."""
TEXT = 2000
MAX_NUMBERS = 40


def each(notification: Notification, alert: Alert) -> dict[str, Any]:
    """One event, without its routing key."""
    action = "resolve" if alert.phase is AlertPhase.RESOLVED else "trigger"
    if action == "trigger" and alert.acknowledged_by is not None:
        action = "acknowledge"
    numbers = {clean(name): value for name, value in list(alert.evidence.items())[:MAX_NUMBERS]}
    notes = {clean(title): cut(text, TEXT) for title, text in alert.notes.items()}
    event: dict[str, Any] = {
        "event_action": action,
        "dedup_key": alert.fingerprint,
        "payload": {
            "summary": cut(f"{alert.job}: {alert.name}: {alert.summary}", SUMMARY),
            "source": alert.job,
            "severity": alert.severity.value,
            "timestamp": rfc3339(alert.ends_at or alert.starts_at),
            "component": clean(alert.name),
            "group": alert.job,
            "class": alert.kind.value,
            "custom_details": {"attempt": alert.attempt, "step": alert.step, "evidence": numbers, **notes},
        },
        "client": "trimtab",
    }
    if notification.link:
        event |= {"client_url": notification.link, "links": [{"href": notification.link, "text": alert.job}]}
    return event


def keyed(body: dict[str, Any], key: str) -> dict[str, Any]:
    """The event with the key that says to whom it goes."""
    return {"routing_key": key, **body}


SHAPE = Shape(
    each=each,
    whole=None,
    timing=TIMING,
    kinds=LASTING,
    url=URL,
    keyed=keyed,
    stateful=True,
    acknowledges=True,
)
