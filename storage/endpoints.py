"""Endpoints: who is told of what. Whatever changes one is put in the audit log in the same transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from trimtab.storage import audit, outbox
from trimtab.storage.alert import Alert, AlertKind, AlertPhase, Severity
from trimtab.storage.audit import Deed
from trimtab.storage.database import Database
from trimtab.storage.tables.alerts import AlertRow, DeliveryRow, EndpointRow, GroupRow
from trimtab.storage.told import Told
from trimtab.storage.values import Origin

MAX_ENDPOINTS = 100
"""Each is delivered to beside the others, so their number bounds the connections that are open at once."""
SECRET = frozenset({"url", "key", "secret", "previous_secret"})
"""Fields that are credentials."""


class UnknownEndpointError(LookupError):
    """No endpoint has that id."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(f"there is no webhook {endpoint!r}; `trimtab webhook list` shows those that there are")
        self.endpoint = endpoint


class EndpointConflictError(ValueError):
    """A name that is taken, or one endpoint too many; the message begins with the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a group is told, in Alertmanager's terms; seconds."""

    group_wait: float
    """From a change until it is told, so that what goes together comes together."""
    group_interval: float
    """Least time between two messages on one job."""
    repeat_interval: float | None
    """After which what still fires is told again; None for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Somebody who is told. Times are Unix seconds."""

    id: str
    name: str
    shape: str
    """A key of `trimtab.api.notify.shapes.SHAPES`."""
    url: str = field(repr=False)
    key: str = field(default="", repr=False)
    """The shape's own credential, if it has one; else empty."""
    jobs: tuple[str, ...] = ("*",)
    """Globs, of which the job's name must match one."""
    severity: Severity
    """The least."""
    kinds: tuple[AlertKind, ...]
    timing: Timing
    send_resolved: bool = True
    enabled: bool = True
    disabled_reason: str = ""
    secret: str = field(repr=False)
    """What it is signed with, `whsec_...`."""
    previous_secret: str | None = field(default=None, repr=False)
    """What it was signed with before, and is as well until `previous_until`."""
    previous_until: float | None = None
    created_at: float
    not_before: float | None = None
    """When it may be asked again, as it said itself."""

    def covers(self, job: str) -> bool:
        """Whether it is told of this job."""
        return any(fnmatchcase(job, glob) for glob in self.jobs)

    def wants(self, alert: Alert) -> bool:
        """Whether it is told of this alert."""
        return alert.kind in self.kinds and alert.severity.rank >= self.severity.rank and self.covers(alert.job)

    def secrets(self, now: float) -> tuple[str, ...]:
        """What a message is signed with now, the newest secret first."""
        old = self.previous_secret is not None and now < (self.previous_until or 0.0)
        return (self.secret, self.previous_secret) if old and self.previous_secret else (self.secret,)


class Endpoints:
    """The endpoints of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Endpoint]:
        """Every endpoint, by name."""
        with self._database.read() as connection:
            return [as_endpoint(row) for row in connection.execute(_ENDPOINTS.order_by(EndpointRow.name)).mappings()]

    def get(self, endpoint: str) -> Endpoint:
        """One endpoint. Raises `UnknownEndpointError`."""
        with self._database.read() as connection:
            return found(connection, endpoint)

    def add(self, endpoint: Endpoint, *, origin: Origin, reason: str) -> None:
        """Add one, which is told of what fires already.

        Raises:
            EndpointConflictError: the name is taken, or there are `MAX_ENDPOINTS`.
        """
        with self._database.write() as connection:
            number = connection.execute(select(func.count()).select_from(EndpointRow)).scalar_one()
            if number >= MAX_ENDPOINTS:
                raise EndpointConflictError(f"name: there are {number} webhooks, and no more can be had; remove one")
            row = _as_row(endpoint)
            with _alone(endpoint.name):
                connection.execute(insert(EndpointRow).values(**row))
            _look_again(connection, endpoint.created_at)
            detail = {"webhook": endpoint.id, "after": _shown(row)}
            audit.append(connection, [_deed("webhook_added", endpoint.created_at, origin, reason, detail)])

    def change(
        self,
        endpoint: str,
        changes: Callable[[Endpoint], Mapping[str, Any]],
        *,
        now: float,
        origin: Origin,
        reason: str,
    ) -> Endpoint:
        """Replace fields of one, by name; one that is enabled again is told of what fires.

        `changes` says which, given the endpoint as it is, and nobody else changes it meanwhile. What it raises goes on,
        and nothing is changed. At another address what is on its way is tried at once.

        Raises:
            UnknownEndpointError: there is no such endpoint. EndpointConflictError: the name is taken.
        """
        with self._database.write() as connection:
            present = found(connection, endpoint, lock=True)
            before = _as_row(present)
            after = before | _columns(changes(present))
            if after["enabled"] and not before["enabled"]:
                after |= {"disabled_reason": "", "not_before": None}
                _begin_again(connection, endpoint)
            if after["url"] != before["url"]:
                after["not_before"] = None
                _hasten(connection, endpoint, now)
            with _alone(after["name"]):
                connection.execute(update(EndpointRow).where(EndpointRow.id == endpoint).values(**after))
            if before["enabled"] and not after["enabled"]:
                disable(connection, endpoint, reason, now)
            _look_again(connection, now)
            different = [name for name in after if after[name] != before[name]]
            detail = {"webhook": endpoint} | {
                which: _shown({name: row[name] for name in different})
                for which, row in (("before", before), ("after", after))
            }
            audit.append(connection, [_deed("webhook_changed", now, origin, reason, detail)])
            return found(connection, endpoint)

    def remove(self, endpoint: str, *, now: float, origin: Origin, reason: str) -> None:
        """Remove one, and everything that was to be delivered to it. Raises `UnknownEndpointError`."""
        with self._database.write() as connection:
            before = _as_row(found(connection, endpoint, lock=True))
            groups = select(GroupRow.job_id).where(GroupRow.endpoint_id == endpoint).order_by(GroupRow.job_id)
            connection.execute(groups.with_for_update()).all()
            hold_pending(connection, endpoint)
            connection.execute(delete(EndpointRow).where(EndpointRow.id == endpoint))
            detail = {"webhook": endpoint, "before": _shown(before)}
            audit.append(connection, [_deed("webhook_removed", now, origin, reason, detail)])


def as_endpoint(row: RowMapping) -> Endpoint:
    """The endpoint that a row of `endpoints` holds."""
    return Endpoint(
        **{name: row[name] for name in _SAME},
        jobs=tuple(json.loads(row["jobs"])),
        severity=Severity(row["severity"]),
        kinds=tuple(map(AlertKind, json.loads(row["kinds"]))),
        timing=Timing(**{each.name: row[each.name] for each in fields(Timing)}),
    )


_ENDPOINTS = select(EndpointRow.__table__)
_SAME = (
    *("id", "name", "shape", "url", "key", "send_resolved", "enabled", "disabled_reason"),
    *("secret", "previous_secret", "previous_until", "created_at", "not_before"),
)
"""Fields that are stored as they are."""


def found(connection: Connection, endpoint: str, *, lock: bool = False) -> Endpoint:
    """One endpoint. Raises `UnknownEndpointError`."""
    statement = _ENDPOINTS.where(EndpointRow.id == endpoint)
    row = connection.execute(statement.with_for_update(key_share=True) if lock else statement).mappings().one_or_none()
    if row is None:
        raise UnknownEndpointError(endpoint)
    return as_endpoint(row)


def _as_row(endpoint: Endpoint) -> dict[str, Any]:
    return _columns({each.name: getattr(endpoint, each.name) for each in fields(endpoint)})


def _columns(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an endpoint as what is stored of them."""
    row = dict(changes)
    row |= {name: json.dumps(row[name]) for name in ("jobs", "kinds") if name in row}
    if timing := row.pop("timing", None):
        row |= asdict(timing)
    return row


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Write an endpoint with this name, which the database lets one have; who looked first could be overtaken."""
    try:
        yield
    except IntegrityError as error:
        raise EndpointConflictError(f"name: there is a webhook {name!r}; give another name") from error


def disable(connection: Connection, endpoint: str, reason: str, now: float) -> None:
    """Send nothing to an endpoint any more; what was on its way is dead."""
    values = {"enabled": False, "disabled_reason": reason}
    connection.execute(update(EndpointRow).where(EndpointRow.id == endpoint).values(**values))
    hold_pending(connection, endpoint)
    left = DeliveryRow.endpoint_id == endpoint, DeliveryRow.status == "pending"
    dead = {"status": "dead", "next_at": None, "settled_at": now, "error": f"the webhook was disabled: {reason}"}
    connection.execute(update(DeliveryRow).where(*left).values(**dead))


def hold_pending(connection: Connection, endpoint: str) -> None:
    """Lock what is on its way to an endpoint, in the order in which everybody does."""
    pending = DeliveryRow.endpoint_id == endpoint, DeliveryRow.status == "pending"
    numbers = select(DeliveryRow.number).where(*pending).order_by(DeliveryRow.number)
    connection.execute(numbers.with_for_update()).all()


def _hasten(connection: Connection, endpoint: str, now: float) -> None:
    """Have what is on its way to an endpoint tried at once."""
    hold_pending(connection, endpoint)
    pending = DeliveryRow.endpoint_id == endpoint, DeliveryRow.status == "pending"
    connection.execute(update(DeliveryRow).where(*pending).values(next_at=now))


def _begin_again(connection: Connection, endpoint: str) -> None:
    """Whether it got what it was told last is not known: tell it anew what fires, and what was resolved meanwhile."""
    groups = select(GroupRow.job_id, GroupRow.told).where(GroupRow.endpoint_id == endpoint).order_by(GroupRow.job_id)
    for row in connection.execute(groups.with_for_update()).all():
        told = Told.decoded(row.told)
        told = replace(told, firing={}, muted=told.muted | told.firing.keys(), acknowledged=frozenset())
        place = GroupRow.endpoint_id == endpoint, GroupRow.job_id == row.job_id
        connection.execute(update(GroupRow).where(*place).values(told=told.encoded()))


def _look_again(connection: Connection, now: float) -> None:
    """Have every group looked at of which something may have to be told."""
    firing = select(AlertRow.job_id).where(AlertRow.phase == AlertPhase.FIRING)
    known = select(GroupRow.job_id)
    for job_id in connection.execute(firing.union(known)).scalars().all():
        outbox.touch(connection, job_id, now)


def _deed(action: str, now: float, origin: Origin, reason: str, detail: Mapping[str, Any]) -> Deed:
    return Deed(action=action, at=now, origin=origin, reason=reason, detail=detail)


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without credentials."""
    return {name: "(secret)" if name in SECRET and value else value for name, value in row.items()}
