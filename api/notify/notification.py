"""What one endpoint is told at once, before it is put into the endpoint's words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from trimtab.storage.alert import Alert, AlertPhase


class Reason(StrEnum):
    """Why something is told; those that Alertmanager has too in its own words (`notify/notify.go`, 0.34)."""

    NONE = "none"
    FIRST = "first notification"
    NEW = "new alerts added"
    SOME_RESOLVED = "some alerts resolved"
    ALL_RESOLVED = "all alerts resolved"
    REPEAT = "repeat interval elapsed"
    ACKNOWLEDGED = "alerts acknowledged"
    NOTICE = "notice"
    TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One message on one job. Texts in it may hold what users wrote: every shape escapes them."""

    receiver: str
    """Name of the endpoint."""
    job: str
    reason: Reason
    alerts: tuple[Alert, ...]
    """Those that fire first, then those that were resolved; or notices alone."""
    news: frozenset[str]
    """Fingerprints of those that the endpoint does not know, or not as they are now."""
    at: float
    """Unix seconds."""
    repeat_interval: float | None = None
    """Seconds after which it is told again as long as it fires; None where it is not."""
    link: str = ""
    """Where the job is looked at; empty where that is not known."""

    @property
    def status(self) -> str:
        """`firing` as long as one fires, `notice` for notices, else `resolved`."""
        lasting = [alert for alert in self.alerts if alert.kind.lasts]
        if not lasting:
            return "notice"
        return "firing" if any(alert.phase is AlertPhase.FIRING for alert in lasting) else "resolved"


def rfc3339(seconds: float) -> str:
    """Unix seconds as a UTC time to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
