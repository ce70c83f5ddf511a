"""Alerts pushed to a real Alertmanager, as Prometheus does it (`POST /api/v2/alerts`).

Alertmanager groups, repeats and routes by itself, so it is told at once, and every minute again: what is not repeated
before its `endsAt` is resolved there. Its alerts are their labels, and the severity is one of them, by which people
route. An alert that has worsened is therefore another one there, and the milder one is ended with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.api.notify.notification import Notification, rfc3339
from trimtab.api.notify.shapes.labels import explanation, labels
from trimtab.api.notify.shapes.shape import LASTING, Shape
from trimtab.storage.alert import Alert
from trimtab.storage.endpoints import Timing

TIMING = Timing(group_wait=0.0, group_interval=1.0, repeat_interval=60.0)
"""Prometheus repeats every minute (`--rules.alert.resend-delay`)."""
VALID_FOR = 4
"""Repeats after which an alert that is not repeated is over, as in Prometheus."""


def each(notification: Notification, alert: Alert) -> list[dict[str, Any]]:
    """The alert, and where it has worsened its end as the milder one."""
    ends = alert.ends_at
    if ends is None and notification.repeat_interval is not None:
        ends = notification.at + VALID_FOR * notification.repeat_interval
    pushed = [_postable(notification, alert, labels(alert), ends)]
    new = alert.fingerprint in notification.news
    if new and alert.worsened_from is not None and alert.worsened_at is not None:
        pushed.append(_postable(notification, alert, labels(alert, alert.worsened_from), alert.worsened_at))
    return pushed


def whole(_: Notification, parts: Sequence[Any]) -> list[Any]:
    """The list of all of them."""
    return [alert for part in parts for alert in part]


def _postable(notification: Notification, alert: Alert, identity: dict[str, str], ends: float | None) -> dict[str, Any]:
    postable = {
        "labels": identity,
        "annotations": explanation(alert),
        "startsAt": rfc3339(alert.starts_at),
        **({} if ends is None else {"endsAt": rfc3339(ends)}),
    }
    return postable | ({"generatorURL": notification.link} if notification.link else {})


SHAPE = Shape(each=each, whole=whole, timing=TIMING, kinds=LASTING, signed=False, stateful=True, always_repeats=True)
