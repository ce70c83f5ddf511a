"""The webhook body of Alertmanager, version 4 (`docs/configuration.md` and `notify/webhook/webhook.go`, 0.34): for
receivers that are there already, which take us for an Alertmanager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from trimtab.api.notify.notification import Notification, rfc3339
from trimtab.api.notify.shapes.labels import explanation, labels
from trimtab.api.notify.shapes.shape import CHAT_TIMING, LASTING, Shape
from trimtab.storage.alert import Alert

MAX_ALERTS = 50
NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time, for what has not ended."""


def each(notification: Notification, alert: Alert) -> dict[str, Any]:
    """One alert."""
    return {
        "status": alert.phase.value,
        "labels": labels(alert),
        "annotations": explanation(alert),
        "startsAt": rfc3339(alert.starts_at),
        "endsAt": NEVER if alert.ends_at is None else rfc3339(alert.ends_at),
        "generatorURL": notification.link,
        "fingerprint": alert.fingerprint,
    }


def whole(notification: Notification, parts: Sequence[Any]) -> dict[str, Any]:
    """The message, with everything that all of its alerts have in common."""
    shown = parts[:MAX_ALERTS]
    return {
        "version": "4",
        "groupKey": f'{{}}:{{job="{notification.job}"}}',
        "truncatedAlerts": len(parts) - len(shown),
        "status": notification.status,
        "receiver": notification.receiver,
        "notification_reason": notification.reason.value,
        "groupLabels": {"job": notification.job},
        "commonLabels": reduce(_common, (part["labels"] for part in parts)),
        "commonAnnotations": reduce(_common, (part["annotations"] for part in parts)),
        "externalURL": notification.link,
        "alerts": list(shown),
    }


def _common(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, str]:
    return dict(a.items() & b.items())


SHAPE = Shape(each=each, whole=whole, timing=CHAT_TIMING, kinds=LASTING, signed=True, stateful=True)
