"""Events into alerts, and their jobs into the outbox, in the transaction of whoever wrote the events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update

from trimtab.storage.alert import AlertPhase, Severity, fingerprint
from trimtab.storage.alert_events import Acknowledged, Change, Fired, Muted, Resolved, Worsened, change_of
from trimtab.storage.tables.alerts import AlertRow, OutboxRow
from trimtab.storage.values import NewEvent

MAX_NAME = 64


def enqueue(connection: Connection, job_id: int, job: str, events: Sequence[NewEvent], now: float) -> None:
    """Take in what has happened to a job, in its order; its groups hear of it where an alert is another one now."""
    changed = False
    for event in events:
        change = change_of(job, event)
        if change is not None:
            changed |= _applied(connection, job_id, job, event, change, now)
    if changed:
        touch(connection, job_id, now)


def touch(connection: Connection, job_id: int, now: float) -> None:
    """Have the job's groups looked at."""
    connection.execute(insert(OutboxRow).values(job_id=job_id, changed_at=now))


def _applied(connection: Connection, job_id: int, job: str, event: NewEvent, change: Change, now: float) -> bool:
    """Whether the alert is another one after the change."""
    key = fingerprint(job, change.kind, change.identity)
    place = AlertRow.job_id == job_id, AlertRow.fingerprint == key
    before = connection.execute(select(AlertRow.__table__).where(*place)).mappings().one_or_none()
    if before is None and isinstance(change, Fired):
        new = _begun(change, now) | {"attempt": event.attempt, "step": event.step}
        connection.execute(insert(AlertRow).values(job_id=job_id, fingerprint=key, **new))
        return True
    if before is None or (before["phase"] != AlertPhase.FIRING and not isinstance(change, Fired)):
        return False
    news = {name: value for name, value in _changed(before, change, now).items() if before[name] != value}
    if news:
        news |= {"attempt": event.attempt, "step": event.step}
        connection.execute(update(AlertRow).where(*place).values(**news))
    return bool(news)


def _changed(before: RowMapping, change: Change, now: float) -> dict[str, Any]:
    match change:
        case Fired() if before["phase"] != AlertPhase.FIRING or not change.kind.lasts:
            return _begun(change, now)
        case Fired():
            told = {"summary": _text(change.summary), "evidence": json.dumps(change.evidence), "silenced": False}
            return told | {"notes": json.dumps(change.notes)} | _graver(before, change.severity, now)
        case Worsened():
            worse = _graver(before, change.severity, now)
            return worse and {**worse, "summary": _text(change.summary), "evidence": json.dumps(change.evidence)}
        case Resolved():
            return {"phase": AlertPhase.RESOLVED, "summary": _text(change.summary), "ends_at": now}
        case Muted():
            return {"silenced": change.silenced}
        case Acknowledged():
            return {"acknowledged_by": _text(change.by)}


def _begun(change: Fired, now: float) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "name": change.name[:MAX_NAME],
        "severity": change.severity,
        "phase": AlertPhase.FIRING,
        "summary": _text(change.summary),
        "starts_at": now,
        "ends_at": None,
        "worsened_at": None,
        "worsened_from": None,
        "silenced": False,
        "acknowledged_by": None,
        "evidence": json.dumps(change.evidence),
        "notes": json.dumps(change.notes),
    }


def _text(text: str) -> str:
    """Without the one character that PostgreSQL cannot hold."""
    return text.replace("\0", "")


def _graver(before: RowMapping, severity: Severity, now: float) -> dict[str, Any]:
    """The severity, where it is worse than the one before. Who looks after it has not seen it like that."""
    if severity.rank <= Severity(before["severity"]).rank:
        return {}
    was = {"worsened_at": now, "worsened_from": before["severity"], "acknowledged_by": None}
    return {"severity": severity, **was}
