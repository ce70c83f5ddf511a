"""When an endpoint is told: grouping, deduplication, reminders and resolutions as Alertmanager does them.

A group is one job to one endpoint. It is told `group_wait` after something changed and no sooner than `group_interval`
after it was told last, so what comes and goes in between is not told at all. What is told is a level: everything of the
job that fires, and everything that the endpoint was told of and that fires no more. What it was told of as firing, it
is told of as resolved.

Where Alertmanager's rules say nothing, or other things: a silenced alert is not repeated, but is told as resolved where
it was told before; an acknowledged one is not repeated until it worsens; one that worsened is told as new; and a
reminder waits until the job has sent something since the last, because of a job that is gone nothing is known.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trimtab.api.notify.notification import Reason
from trimtab.storage.alert import Alert, AlertPhase, Severity
from trimtab.storage.groups import Due
from trimtab.storage.told import Told

NOTICE_LIFE_S = 3600.0
"""A notice that could have been told for so long is no news any more."""
_log = logging.getLogger("trimtab.notify")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an endpoint is to be told of one job now."""

    reason: Reason
    """Why it is told of what lasts; `NONE` where it is not."""
    firing: tuple[Alert, ...]
    resolved: tuple[Alert, ...]
    news: frozenset[str]
    """Fingerprints of those that it does not know, or not as they are now."""
    notices: tuple[Alert, ...]
    told: Told
    """What it knows then."""
    told_at: float | None
    """When it was last told of what lasts, then; Unix seconds, like the next."""
    due_at: float | None
    """When to look again if nothing changes; None for never."""


def needs_update(
    told: Told,
    told_at: float | None,
    firing: Mapping[str, Severity],
    resolved: Collection[str],
    *,
    send_resolved: bool,
    repeat_interval: float | None,
    now: float,
) -> Reason:
    """Why a group has to be told, as Alertmanager's deduplication decides it (`notify/dedup_stage.go`, 0.34).

    `firing` and `resolved` are by fingerprint; an alert is not known if it is worse than it was told. Times are Unix
    seconds.
    """
    owed = set(resolved) & (told.firing.keys() | told.muted)
    if any(_unknown(told, key, severity) for key, severity in firing.items()):
        return Reason.NEW if told.firing else Reason.FIRST
    if not firing:
        return Reason.ALL_RESOLVED if owed else Reason.NONE
    if send_resolved and owed:
        return Reason.SOME_RESOLVED
    if repeat_interval is not None and (told_at is None or told_at <= now - repeat_interval):
        return Reason.REPEAT
    return Reason.NONE


def decided(due: Due, now: float, *, acknowledges: bool, always_repeats: bool) -> Decision:
    """What to tell, and what is known afterwards.

    `acknowledges`: whether the endpoint can be told that somebody looks after an alert. `always_repeats`: whether it
    takes an alert for resolved that is not repeated, so that reminders are no reminders.
    """
    told, endpoint = due.told, due.endpoint
    lasting = {alert.fingerprint: alert for alert in due.alerts if alert.kind.lasts}
    fires = {key for key, alert in lasting.items() if alert.phase is AlertPhase.FIRING}
    firing = {key: alert for key, alert in lasting.items() if key in fires and _told_of(due, alert)}
    known = told.firing.keys() | told.muted
    gone = {key: one for key, one in lasting.items() if key not in fires and key in known | due.undelivered}
    unattended = [alert for alert in firing.values() if always_repeats or alert.acknowledged_by is None]
    reminds = bool(unattended) and (always_repeats or (due.reported_at or 0.0) > (due.told_at or 0.0))
    repeat = endpoint.timing.repeat_interval
    severities = {key: alert.severity for key, alert in firing.items()}
    reason = needs_update(
        told,
        due.told_at,
        severities,
        known & gone.keys(),
        send_resolved=endpoint.send_resolved,
        repeat_interval=repeat if reminds else None,
        now=now,
    )
    acknowledged = frozenset(key for key, alert in firing.items() if alert.acknowledged_by is not None)
    attended = acknowledged - told.acknowledged if acknowledges else frozenset()
    if reason is Reason.NONE and attended:
        reason = Reason.ACKNOWLEDGED
    notices, noticed = _notices(due, now)
    told_at = due.told_at if reason is Reason.NONE else now
    return Decision(
        reason=reason,
        firing=tuple(sorted(firing.values(), key=lambda alert: (-alert.severity.rank, alert.starts_at))),
        resolved=tuple(gone.values()) if endpoint.send_resolved else (),
        news=_news(told, firing, attended, repeated=reason is Reason.REPEAT) | (known & gone.keys()),
        notices=notices,
        told=Told(
            firing=severities,
            muted=frozenset((known & fires) - firing.keys()),
            acknowledged=acknowledged,
            noticed=noticed,
        ),
        told_at=told_at,
        due_at=None if repeat is None or not unattended else _next_reminder(told_at, repeat, now),
    )


def _told_of(due: Due, alert: Alert) -> bool:
    return not alert.silenced and due.endpoint.wants(alert)


def _news(told: Told, firing: Mapping[str, Alert], attended: Collection[str], *, repeated: bool) -> frozenset[str]:
    return frozenset(
        key for key, alert in firing.items() if repeated or key in attended or _unknown(told, key, alert.severity)
    )


def _unknown(told: Told, key: str, severity: Severity) -> bool:
    """Whether it was not told to fire, or not to be as bad."""
    return key not in told.firing or severity.rank > told.firing[key].rank


def _notices(due: Due, now: float) -> tuple[tuple[Alert, ...], frozenset[str]]:
    """Those that the endpoint has not been told, and all that it has, or that are too old to be told."""
    notices = [alert for alert in due.alerts if not alert.kind.lasts]
    endpoint = due.endpoint
    unknown = [
        alert
        for alert in notices
        if alert.fingerprint not in due.told.noticed
        and alert.starts_at >= endpoint.created_at
        and endpoint.wants(alert)
    ]
    since = now - (endpoint.timing.group_wait + endpoint.timing.group_interval + NOTICE_LIFE_S)
    for old in (alert for alert in unknown if alert.starts_at < since):
        _log.warning(
            "webhook %s is not told of job %s: %s (%s): it is %.0f s old",
            endpoint.name,
            due.job,
            old.name,
            old.summary,
            now - old.starts_at,
        )
    dealt_with = due.told.noticed & {alert.fingerprint for alert in notices} | {alert.fingerprint for alert in unknown}
    return tuple(alert for alert in unknown if alert.starts_at >= since), dealt_with


def _next_reminder(told_at: float | None, repeat_interval: float, now: float) -> float:
    """In its time, and where that has passed because nothing came from the job, later."""
    due = (now if told_at is None else told_at) + repeat_interval
    return due if due > now else now + repeat_interval
