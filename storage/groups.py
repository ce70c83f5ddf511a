"""Groups: what each endpoint knows of each job, and when to look at that again.

Replicas share the work: whoever takes a row of the outbox, or a group that is due, locks it until it is dealt with, and
the others pass it by. What is decided is the caller's; here it is done in one transaction.

On PostgreSQL whoever locks several rows does it in one order, here and in the modules on endpoints and deliveries:
endpoint, groups by job, deliveries by number. Else two processes could wait for each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, delete, exists, func, select, update

from trimtab.storage.alert import Alert, AlertKind, AlertPhase, Severity
from trimtab.storage.database import Database
from trimtab.storage.deliveries import added, undelivered
from trimtab.storage.delivery import NewMessage
from trimtab.storage.endpoints import Endpoint, as_endpoint
from trimtab.storage.inserts import upsert
from trimtab.storage.tables import JobRow, LedgerRow
from trimtab.storage.tables.alerts import AlertRow, EndpointRow, GroupRow, OutboxRow
from trimtab.storage.told import Told

BATCH = 500
"""Rows of the outbox that are taken in one transaction."""
ARCHIVED = "the job was archived"
AHEAD_S = 600.0
"""By how much a time may lie further ahead than anybody waits: clocks are apart, and a group may have been put off.
What lies further was written by a clock that was set back since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A group that is due."""

    endpoint: Endpoint
    job: str
    alerts: tuple[Alert, ...]
    """Of the job, whether this endpoint wants them or not."""
    told: Told
    told_at: float | None
    undelivered: frozenset[str]
    """Fingerprints of which a message that was not delivered yet says that they are resolved."""
    reported_at: float | None
    """When the job last sent anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What is made of a group that was due."""

    told: Told
    told_at: float | None
    due_at: float | None
    """When it is looked at again if nothing changes; None for never."""
    messages: tuple[NewMessage, ...] = ()


class Groups:
    """The groups of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def schedule(self, now: float) -> bool:
        """Take jobs out of the outbox, and have each of their groups looked at in its time; whether more are there."""
        with self._database.read() as connection:
            if not connection.execute(select(exists().where(OutboxRow.id.is_not(None)))).scalar_one():
                return False
        with self._database.write() as connection:
            taken = select(OutboxRow.id, OutboxRow.job_id, OutboxRow.changed_at).order_by(OutboxRow.id).limit(BATCH)
            rows = connection.execute(taken.with_for_update(skip_locked=True)).all()
            if not rows:
                return False
            connection.execute(delete(OutboxRow).where(OutboxRow.id.in_([row.id for row in rows])))
            changed_at: dict[int, float] = {}
            for row in rows:
                changed_at[row.job_id] = min(row.changed_at, changed_at.get(row.job_id, now))
            _schedule(connection, changed_at, now)
            return len(rows) == BATCH

    def plan(self, now: float, decide: Callable[[Due], Planned]) -> bool:
        """Do with the group that has been due for longest what `decide` says; whether there was one."""
        due = (
            select(GroupRow.endpoint_id, GroupRow.job_id, GroupRow.told, GroupRow.told_at)
            .join(EndpointRow, EndpointRow.id == GroupRow.endpoint_id)
            .where((GroupRow.due_at <= now) | _misdated(now), EndpointRow.enabled)
            .order_by(GroupRow.due_at)
            .limit(1)
        )
        with self._database.read() as connection:
            if connection.execute(due).first() is None:
                return False
        with self._database.write() as connection:
            group = connection.execute(due.with_for_update(of=GroupRow, skip_locked=True)).one_or_none()
            if group is None:
                return False
            planned = decide(_due(connection, group, now))
            added(connection, group.endpoint_id, group.job_id, planned.messages, now)
            values = {"told": planned.told.encoded(), "told_at": planned.told_at, "due_at": planned.due_at}
            place = GroupRow.endpoint_id == group.endpoint_id, GroupRow.job_id == group.job_id
            connection.execute(update(GroupRow).where(*place).values(**values))
            return True

    def prune(self, *, notices_before: float, alerts_before: float) -> None:
        """Forget notices and resolved alerts that are older than these Unix times."""
        notice = and_(AlertRow.kind == AlertKind.CHANGE, AlertRow.starts_at < notices_before)
        old = select(AlertRow.job_id, AlertRow.fingerprint).where(notice | (AlertRow.ends_at < alerts_before))
        with self._database.write() as connection:
            for row in connection.execute(old.with_for_update(skip_locked=True)).all():
                place = AlertRow.job_id == row.job_id, AlertRow.fingerprint == row.fingerprint
                connection.execute(delete(AlertRow).where(*place))


def alerts_of(connection: Connection, job_id: int) -> tuple[Alert, ...]:
    """A job's alerts, those that started first in front; none fires any more in a job that is archived."""
    job = connection.execute(select(JobRow.name, JobRow.archived_at).where(JobRow.id == job_id)).one()
    rows = connection.execute(
        select(AlertRow.__table__).where(AlertRow.job_id == job_id).order_by(AlertRow.starts_at, AlertRow.name)
    )
    alerts = [as_alert(row, job.name) for row in rows.mappings()]
    if job.archived_at is None:
        return tuple(alerts)
    over: dict[str, Any] = {"phase": AlertPhase.RESOLVED, "ends_at": job.archived_at, "summary": ARCHIVED}
    return tuple(replace(one, **over) if one.phase is AlertPhase.FIRING and one.kind.lasts else one for one in alerts)


def as_alert(row: RowMapping, job: str) -> Alert:
    """The alert that a row of `alerts` holds."""
    same = ("fingerprint", "name", "summary", "attempt", "step", "starts_at", "ends_at", "worsened_at", "silenced")
    return Alert(
        **{name: row[name] for name in (*same, "acknowledged_by")},
        job=job,
        kind=AlertKind(row["kind"]),
        severity=Severity(row["severity"]),
        phase=AlertPhase(row["phase"]),
        worsened_from=None if row["worsened_from"] is None else Severity(row["worsened_from"]),
        evidence=json.loads(row["evidence"]),
        notes=json.loads(row["notes"]),
    )


def _misdated(now: float) -> ColumnElement[bool]:
    """Whether a group that waits was told, or waits, in a future that is none: its clock was set back since."""
    waits = EndpointRow.group_wait + EndpointRow.group_interval + func.coalesce(EndpointRow.repeat_interval, 0.0)
    longest = case((GroupRow.told_at.is_(None), EndpointRow.group_wait), else_=waits)
    ahead = now + AHEAD_S
    return (GroupRow.due_at.is_not(None) & (GroupRow.told_at > ahead)) | (GroupRow.due_at > longest + ahead)


def _schedule(connection: Connection, changed_at: dict[int, float], now: float) -> None:
    """A group is due `group_wait` after the change, and `group_interval` after what it was told last."""
    named = connection.execute(select(JobRow.id, JobRow.name).where(JobRow.id.in_(changed_at)))
    names = {row.id: row.name for row in named}
    endpoints = [as_endpoint(row) for row in connection.execute(select(EndpointRow.__table__)).mappings()]
    known = select(GroupRow.endpoint_id, GroupRow.job_id).where(GroupRow.job_id.in_(changed_at))
    groups = {(row.endpoint_id, row.job_id) for row in connection.execute(known)}
    for endpoint in sorted(endpoints, key=lambda one: one.id):
        affected = {
            job_id: at
            for job_id, at in sorted(changed_at.items())
            if (endpoint.id, job_id) in groups or endpoint.covers(names[job_id])
        }
        if affected:
            _wake(connection, endpoint, affected, now)


def _wake(connection: Connection, endpoint: Endpoint, changed_at: dict[int, float], now: float) -> None:
    nothing = {"endpoint_id": endpoint.id, "told": Told().encoded(), "told_at": None}
    wait, interval = endpoint.timing.group_wait, endpoint.timing.group_interval
    rows = [{**nothing, "job_id": job_id, "due_at": at + wait} for job_id, at in changed_at.items()]
    statement = upsert(connection, GroupRow).values(rows)
    waited = statement.excluded.due_at
    told_at = case((GroupRow.told_at > now, now), else_=GroupRow.told_at)
    rested = func.coalesce(told_at + interval, waited)
    due = case((rested > waited, rested), else_=waited)
    sooner = case((GroupRow.due_at < due, GroupRow.due_at), else_=due)
    places = ["endpoint_id", "job_id"]
    connection.execute(statement.on_conflict_do_update(index_elements=places, set_={"due_at": sooner}))


def _due(connection: Connection, group: Any, now: float) -> Due:
    endpoint = connection.execute(select(EndpointRow.__table__).where(EndpointRow.id == group.endpoint_id))
    alerts = alerts_of(connection, group.job_id)
    name = connection.execute(select(JobRow.name).where(JobRow.id == group.job_id)).scalar_one()
    newest = select(LedgerRow.received_at).where(LedgerRow.job_id == group.job_id).order_by(LedgerRow.seq.desc())
    return Due(
        endpoint=as_endpoint(endpoint.mappings().one()),
        job=name,
        alerts=alerts,
        told=Told.decoded(group.told),
        told_at=None if group.told_at is None else min(group.told_at, now),
        undelivered=undelivered(connection, group.endpoint_id, group.job_id),
        reported_at=connection.execute(newest.limit(1)).scalar_one_or_none(),
    )
