"""Slack's incoming webhooks: a message of blocks, and a line of text for where blocks are not shown.

A section takes 3000 characters and a message 50 blocks; in practice all blocks together about 13 000 characters, beyond
which the whole message is refused (`msg_blocks_too_long`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.api.notify.notification import Notification
from trimtab.api.notify.shapes.headline import headline
from trimtab.api.notify.shapes.shape import CHAT_TIMING, Shape
from trimtab.api.notify.text import cut, measured
from trimtab.storage.alert import Alert, AlertPhase, Severity

HEADER = 150
TEXT = 700
MAX_ALERTS = 8
"""Two blocks of at most `TEXT` characters each."""
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKS = {
    Severity.INFO: ":large_blue_circle:",
    Severity.WARNING: ":large_yellow_circle:",
    Severity.CRITICAL: ":red_circle:",
}
RESOLVED = ":white_check_mark:"


def escape(letter: str) -> str:
    """What Slack would read as a mention, a link or an entity."""
    return _ESCAPES.get(letter, letter)


def each(_: Notification, alert: Alert) -> list[dict[str, Any]]:
    """The blocks of one alert."""
    over = alert.phase is AlertPhase.RESOLVED
    mark, state = (RESOLVED, "resolved") if over else (_MARKS[alert.severity], alert.severity.value)
    title = f"{mark} *{cut(alert.name, 64, escape)}* {state}"
    blocks = [_section(f"{title}\n{cut(alert.summary, TEXT, escape)}")]
    lines = [] if over else [f"{what}: {text}" for what, text in alert.notes.items()]
    if alert.acknowledged_by is not None and not over:
        lines.append(f"{alert.acknowledged_by} looks after it")
    if alert.evidence and not over:
        lines.append(measured(alert.evidence))
    if lines:
        element = {"type": "mrkdwn", "text": cut("\n".join(lines), TEXT, escape), "verbatim": True}
        blocks.append({"type": "context", "elements": [element]})
    return blocks


def whole(notification: Notification, parts: Sequence[Any]) -> dict[str, Any]:
    """The message."""
    told = headline(notification)
    blocks: list[Any] = [{"type": "header", "text": {"type": "plain_text", "text": cut(told, HEADER), "emoji": False}}]
    for part in parts[:MAX_ALERTS]:
        blocks += part
    left = len(parts) - MAX_ALERTS
    closing = [f"and {left} more"] if left > 0 else []
    closing += [f"<{cut(notification.link, TEXT, escape)}|{cut(notification.job, 128, escape)}>"] * bool(
        notification.link
    )
    if closing:
        blocks.append(_section(", ".join(closing)))
    return {"text": cut(told, HEADER, escape), "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


SHAPE = Shape(each=each, whole=whole, timing=CHAT_TIMING, severity=Severity.INFO)
