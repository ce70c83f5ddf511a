"""Our own JSON, for receivers that people write themselves; signed, and shaped as Standard Webhooks recommends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trimtab.api.notify.notification import Notification, rfc3339
from trimtab.api.notify.shapes.shape import CHAT_TIMING, Shape
from trimtab.api.notify.text import clean, cut
from trimtab.storage.alert import Alert, Severity

MAX_BYTES = 20_000
"""What the specification advises to stay under."""
TEXT = 2000
MAX_NUMBERS = 40


def each(_: Notification, alert: Alert) -> dict[str, Any]:
    """One alert, times in RFC 3339; what is not known is null."""
    return {
        "fingerprint": alert.fingerprint,
        "kind": alert.kind.value,
        "name": alert.name,
        "status": alert.phase.value,
        "severity": alert.severity.value,
        "summary": cut(alert.summary, TEXT),
        "attempt": alert.attempt,
        "step": alert.step,
        "starts_at": rfc3339(alert.starts_at),
        "worsened_at": None if alert.worsened_at is None else rfc3339(alert.worsened_at),
        "ends_at": None if alert.ends_at is None else rfc3339(alert.ends_at),
        "acknowledged_by": None if alert.acknowledged_by is None else cut(alert.acknowledged_by, 128),
        "evidence": {clean(name): value for name, value in list(alert.evidence.items())[:MAX_NUMBERS]},
        "notes": {clean(title): cut(text, TEXT) for title, text in alert.notes.items()},
    }


def whole(notification: Notification, parts: Sequence[Any]) -> dict[str, Any]:
    """The message; of what would be too long, first the evidence is left out, then the last alerts."""
    body = _body(notification, parts, truncated=0)
    if _too_long(body):
        parts = [{**part, "evidence": {}, "notes": {}} for part in parts]
        body = _body(notification, parts, truncated=0)
    kept = len(parts)
    while _too_long(body) and kept > 1:
        kept -= 1
        body = _body(notification, parts[:kept], truncated=len(parts) - kept)
    return body


def _body(notification: Notification, parts: Sequence[Any], *, truncated: int) -> dict[str, Any]:
    return {
        "type": f"alerts.{notification.status}",
        "timestamp": rfc3339(notification.at),
        "data": {
            "job": notification.job,
            "reason": notification.reason.value,
            "url": notification.link or None,
            "truncated_alerts": truncated,
            "alerts": list(parts),
        },
    }


def _too_long(body: Any) -> bool:
    return len(json.dumps(body)) > MAX_BYTES


SHAPE = Shape(each=each, whole=whole, timing=CHAT_TIMING, severity=Severity.INFO, signed=True)
