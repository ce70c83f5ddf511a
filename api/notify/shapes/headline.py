"""One line about a notification, for people."""

from __future__ import annotations

from trimtab.api.notify.notification import Notification, Reason
from trimtab.storage.alert import AlertPhase


def headline(notification: Notification) -> str:
    """Such as `my-run: 2 firing, 1 resolved`."""
    if notification.reason is Reason.TEST:
        return f"{notification.job}: a test"
    if notification.status == "notice":
        return f"{notification.job}: what was changed"
    phases = [alert.phase for alert in notification.alerts]
    counts = [f"{phases.count(phase)} {phase.value}" for phase in AlertPhase if phase in phases]
    still = " (still)" if notification.reason is Reason.REPEAT else ""
    return f"{notification.job}: {', '.join(counts)}{still}"
