"""Discord's webhooks: a message of embeds, in which nobody is mentioned, whatever a run is called.

A field that is too long, or embeds of more than 6000 characters together, make Discord refuse the whole message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.api.notify.notification import Notification, rfc3339
from trimtab.api.notify.shapes.headline import headline
from trimtab.api.notify.shapes.shape import CHAT_TIMING, Shape
from trimtab.api.notify.text import cut, measured
from trimtab.storage.alert import Alert, AlertPhase, Severity

CONTENT = 2000
TITLE = 100
DESCRIPTION = 500
FIELD = 250
MAX_ALERTS = 5
"""Embeds of at most `TITLE + DESCRIPTION + 2 * (FIELD + 8)` characters each."""
_COLOURS = {Severity.INFO: 0x3B82F6, Severity.WARNING: 0xEAB308, Severity.CRITICAL: 0xDC2626}
RESOLVED = 0x22C55E
_MARKUP = frozenset("\\*_~`|>#[]()<@:")


def escape(letter: str) -> str:
    """What Discord would read as markup, a mention or a link."""
    return f"\\{letter}" if letter in _MARKUP else letter


def each(notification: Notification, alert: Alert) -> dict[str, Any]:
    """The embed of one alert."""
    over = alert.phase is AlertPhase.RESOLVED
    title = f"{alert.name}: {'resolved' if over else alert.severity.value}"
    lines = [] if over else [f"{what}: {text}" for what, text in alert.notes.items()]
    if alert.acknowledged_by is not None and not over:
        lines.append(f"{alert.acknowledged_by} looks after it")
    fields = [("more", "\n".join(lines)), ("numbers", "" if over else measured(alert.evidence))]
    embed: dict[str, Any] = {
        "title": cut(title, TITLE, escape),
        "description": cut(alert.summary, DESCRIPTION, escape),
        "color": RESOLVED if over else _COLOURS[alert.severity],
        "timestamp": rfc3339(alert.ends_at or alert.starts_at),
        "fields": [{"name": name, "value": cut(text, FIELD, escape)} for name, text in fields if text],
    }
    return embed | ({"url": notification.link} if notification.link else {})


def whole(notification: Notification, parts: Sequence[Any]) -> dict[str, Any]:
    """The message."""
    left = len(parts) - MAX_ALERTS
    told = headline(notification) + (f"; {left} of them are not shown" if left > 0 else "")
    return {
        "content": cut(told, CONTENT, escape),
        "embeds": list(parts[:MAX_ALERTS]),
        "allowed_mentions": {"parse": []},
    }


SHAPE = Shape(each=each, whole=whole, timing=CHAT_TIMING, severity=Severity.INFO)
