"""Deliveries: messages on their way, each until it is delivered or dead.

A worker takes an endpoint for as long as one request to it lasts, over all processes, so an endpoint has one request at
a time and nothing is sent twice at once. A worker that dies leaves its lease behind, and what it was sending is sent
again under the same `webhook-id` once that is over. Leases are compared by the clocks of the processes, which may be
apart by as much as a lease outlasts a request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, delete, exists, func, insert, select, update
from sqlalchemy.orm import InstrumentedAttribute, aliased

from trimtab.storage import audit
from trimtab.storage.audit import BY_AGENT, Deed
from trimtab.storage.database import Database
from trimtab.storage.delivery import (
    Claim,
    Delivery,
    DeliveryStateError,
    NewMessage,
    Settlement,
    Status,
    UnknownDeliveryError,
)
from trimtab.storage.endpoints import Endpoint, as_endpoint, disable, found, hold_pending
from trimtab.storage.tables import JobRow
from trimtab.storage.tables.alerts import DeliveryRow, EndpointRow
from trimtab.storage.values import Origin

BATCH = 100
"""Endpoints that are taken in one transaction."""
LONGEST_WAIT_S = 7200.0
"""Until a message is tried again, or a receiver asked."""
APART_S = 60.0
"""By how much the clocks of processes may be apart; what lies further ahead than anything waits was written by a clock
that was set back since."""


class Deliveries:
    """The deliveries of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, now: float, *, lease: str, until: float) -> list[Claim]:
        """Take each endpoint that nobody delivers to and that has something due, with the oldest such message.

        The attempt counts from here on, whether or not its end is ever heard of.
        """
        due = _due(now)
        waiting = exists().where(DeliveryRow.endpoint_id == EndpointRow.id, *due)
        free = EndpointRow.leased_until.is_(None) | _passed(EndpointRow.leased_until, now, until - now)
        ready = EndpointRow.not_before.is_(None) | _passed(EndpointRow.not_before, now, LONGEST_WAIT_S)
        with self._database.read() as connection:
            if not connection.execute(select(exists().where(*due))).scalar_one():
                return []
        with self._database.write() as connection:
            endpoints = select(EndpointRow.__table__).where(EndpointRow.enabled, free, ready, waiting).limit(BATCH)
            # Without a lock on the key, for which whoever adds a message to it would have to wait.
            rows = connection.execute(endpoints.with_for_update(skip_locked=True, key_share=True)).mappings().all()
            claims = [_claimed(connection, as_endpoint(row), now, lease=lease, until=until) for row in rows]
            return [claim for claim in claims if claim is not None]

    def settle(self, claim: Claim, settled: Settlement, now: float) -> None:
        """Put on record what an attempt came to, and let others have the endpoint.

        A worker that lost its lease has nothing to say any more, unless the message arrived: that is so whatever was
        decided meanwhile. What an address answers says nothing of another that the endpoint has got since.
        """
        endpoint, arrived = claim.endpoint.id, settled.status is Status.DELIVERED
        still = (Status.PENDING, Status.SUPERSEDED, Status.DEAD) if arrived else (Status.PENDING,)
        with self._database.write() as connection:
            mine = _freed(connection, claim)
            if not mine and not arrived:
                return
            if not arrived and found(connection, endpoint).url != claim.endpoint.url:
                settled = _elsewhere(claim, settled, now)
            if settled.not_before is not None:
                rest = update(EndpointRow).where(EndpointRow.id == endpoint)
                connection.execute(rest.values(not_before=settled.not_before))
            if settled.disable:
                hold_pending(connection, endpoint)
            values: dict[str, Any] = {"status": settled.status, "answer": settled.answer, "error": settled.error}
            values |= {"next_at": settled.next_at, "settled_at": None if settled.status is Status.PENDING else now}
            place = DeliveryRow.number == claim.delivery.number, DeliveryRow.status.in_(still)
            connection.execute(update(DeliveryRow).where(*place).values(**values))
            if settled.disable:
                disable(connection, endpoint, settled.disable, now)
                detail = {"webhook": endpoint}
                deed = Deed(action="webhook_disabled", at=now, origin=BY_AGENT, reason=settled.disable, detail=detail)
                audit.append(connection, [deed])

    def release(self, claim: Claim) -> None:
        """Give a message back that was not sent to its end: it is due again at once, and the attempt does not count."""
        with self._database.write() as connection:
            if _freed(connection, claim):
                place = DeliveryRow.number == claim.delivery.number, DeliveryRow.status == Status.PENDING
                connection.execute(update(DeliveryRow).where(*place).values(attempts=DeliveryRow.attempts - 1))

    def reclaim(self) -> None:
        """Take every endpoint from whoever had it: for the only process that there is, whose predecessor is dead."""
        with self._database.write() as connection:
            held = update(EndpointRow).where(EndpointRow.lease.is_not(None))
            connection.execute(held.values(**_FREE))

    def send(self, endpoint: str, message: NewMessage, now: float) -> Delivery:
        """Have one message sent that no alert asked for.

        Raises:
            UnknownEndpointError: there is no such endpoint. DeliveryStateError: it is disabled.
        """
        with self._database.write() as connection:
            if not found(connection, endpoint).enabled:
                raise DeliveryStateError(f"id: the webhook {endpoint!r} is disabled; enable it first")
            added(connection, endpoint, None, [message], now)
            return _delivery(connection, message.message_id)

    def retry(self, message: str, now: float, *, origin: Origin, reason: str) -> Delivery:
        """Send a message that is not on its way again, from the first attempt on and under its own `webhook-id`.

        Raises:
            UnknownDeliveryError: there is no such delivery. DeliveryStateError: it is on its way or was delivered, a
                newer one says how its subject stands now, or its endpoint is disabled.
        """
        with self._database.write() as connection:
            delivery = _delivery(connection, message, lock=True)
            if delivery.status in (Status.PENDING, Status.DELIVERED):
                raise DeliveryStateError(
                    f"id: {message!r} is {delivery.status}; only what is not on its way is sent again"
                )
            if not found(connection, delivery.endpoint_id).enabled:
                raise DeliveryStateError(f"id: the webhook of {message!r} is disabled; enable it first")
            if newer := _newer(connection, delivery.number):
                raise DeliveryStateError(
                    f"id: {newer!r} is newer than {message!r} and on the same subject, and what is told last counts; "
                    "send that one again if it did not arrive"
                )
            values = {"status": Status.PENDING, "attempts": 0, "next_at": now, "settled_at": None}
            connection.execute(update(DeliveryRow).where(DeliveryRow.message_id == message).values(**values))
            detail = {"webhook": delivery.endpoint_id, "delivery": message}
            deed = Deed(
                action="delivery_retried", at=now, origin=origin, reason=reason, job=delivery.job, detail=detail
            )
            audit.append(connection, [deed])
            return _delivery(connection, message)

    def get(self, message: str) -> Delivery:
        """One delivery. Raises `UnknownDeliveryError`."""
        with self._database.read() as connection:
            return _delivery(connection, message)

    def page(
        self, endpoint: str, *, before: int | None = None, limit: int, status: Status | None = None
    ) -> list[Delivery]:
        """An endpoint's deliveries with a smaller number, the newest first. Raises `UnknownEndpointError`."""
        statement = _DELIVERIES.where(DeliveryRow.endpoint_id == endpoint).order_by(DeliveryRow.number.desc())
        if before is not None:
            statement = statement.where(DeliveryRow.number < before)
        if status is not None:
            statement = statement.where(DeliveryRow.status == status)
        with self._database.read() as connection:
            found(connection, endpoint)
            return [_as_delivery(row) for row in connection.execute(statement.limit(limit)).mappings()]

    def waiting(self) -> int:
        """Messages that are on their way."""
        with self._database.read() as connection:
            pending = select(func.count()).select_from(DeliveryRow).where(DeliveryRow.status == Status.PENDING)
            return connection.execute(pending).scalar_one()

    def prune(self, *, delivered_before: float, dead_before: float) -> None:
        """Forget what was settled before these Unix times; what died is kept for people to look at."""
        died = DeliveryRow.status == Status.DEAD
        old = (died & (DeliveryRow.settled_at < dead_before)) | (~died & (DeliveryRow.settled_at < delivered_before))
        with self._database.write() as connection:
            connection.execute(delete(DeliveryRow).where(old))


def added(
    connection: Connection, endpoint: str, job_id: int | None, messages: Sequence[NewMessage], now: float
) -> None:
    """Put messages on their way, each in the place of what is still on its way on the same subject."""
    for message in messages:
        place = (
            DeliveryRow.endpoint_id == endpoint,
            DeliveryRow.job_id == job_id,
            DeliveryRow.subject == message.subject,
            DeliveryRow.status == Status.PENDING,
        )
        superseded = {"status": Status.SUPERSEDED, "next_at": None, "settled_at": now}
        connection.execute(update(DeliveryRow).where(*place).values(**superseded))
        connection.execute(
            insert(DeliveryRow).values(
                message_id=message.message_id,
                endpoint_id=endpoint,
                job_id=job_id,
                subject=message.subject,
                reason=message.reason,
                resolved=json.dumps(message.resolved),
                body=message.body,
                status=Status.PENDING,
                attempts=0,
                tries=message.tries,
                created_at=now,
                next_at=now,
                error="",
            )
        )


def undelivered(connection: Connection, endpoint: str, job_id: int) -> frozenset[str]:
    """Fingerprints of which a message that is still on its way says that they are resolved."""
    place = DeliveryRow.endpoint_id == endpoint, DeliveryRow.job_id == job_id, DeliveryRow.status == Status.PENDING
    held = select(DeliveryRow.resolved).where(*place).order_by(DeliveryRow.number).with_for_update()
    return frozenset(fingerprint for text in connection.execute(held).scalars() for fingerprint in json.loads(text))


_DELIVERIES = select(
    *(column for column in DeliveryRow.__table__.columns if column.name not in ("job_id", "resolved")),
    JobRow.name.label("job"),
).outerjoin(JobRow, JobRow.id == DeliveryRow.job_id)


def _as_delivery(row: RowMapping) -> Delivery:
    return Delivery(**{**row, "status": Status(row["status"])})


def _delivery(connection: Connection, message: str, *, lock: bool = False) -> Delivery:
    statement = _DELIVERIES.where(DeliveryRow.message_id == message)
    if lock:
        statement = statement.with_for_update(of=DeliveryRow)
    row = connection.execute(statement).mappings().one_or_none()
    if row is None:
        raise UnknownDeliveryError(message)
    return _as_delivery(row)


def _newer(connection: Connection, number: int) -> str | None:
    """The newest message to the same endpoint, on the same job and subject, if one is newer than this."""
    this, other = aliased(DeliveryRow), aliased(DeliveryRow)
    same = other.endpoint_id == this.endpoint_id, other.job_id == this.job_id, other.subject == this.subject
    newer = select(other.message_id).join(this, and_(*same, other.number > this.number)).where(this.number == number)
    return connection.execute(newer.order_by(other.number.desc()).limit(1)).scalar_one_or_none()


def _passed(
    column: InstrumentedAttribute[Any], now: float, longest: float | ColumnElement[float]
) -> ColumnElement[bool]:
    """Whether a time has passed, or lies further ahead than anything waits."""
    return (column <= now) | (column > longest + (now + APART_S))


def _due(now: float) -> tuple[ColumnElement[bool], ...]:
    """Whether a message is to be sent now; one that was never tried waits for nothing."""
    longest = case((DeliveryRow.attempts == 0, 0.0), else_=LONGEST_WAIT_S)
    return DeliveryRow.status == Status.PENDING, _passed(DeliveryRow.next_at, now, longest)


def _claimed(connection: Connection, endpoint: Endpoint, now: float, *, lease: str, until: float) -> Claim | None:
    """The endpoint with the oldest of its messages that are due; None where another worker was quicker."""
    oldest = _DELIVERIES.where(DeliveryRow.endpoint_id == endpoint.id, *_due(now)).order_by(DeliveryRow.number)
    free = oldest.limit(1).with_for_update(of=DeliveryRow, skip_locked=True)
    row = connection.execute(free).mappings().one_or_none()
    if row is None:
        return None
    values = {"lease": lease, "leased_until": until}
    connection.execute(update(EndpointRow).where(EndpointRow.id == endpoint.id).values(**values))
    delivery = _as_delivery(row)
    attempts = delivery.attempts + 1
    connection.execute(update(DeliveryRow).where(DeliveryRow.number == delivery.number).values(attempts=attempts))
    return Claim(endpoint=endpoint, delivery=replace(delivery, attempts=attempts), lease=lease)


_FREE: dict[str, Any] = {"lease": None, "leased_until": None}


def _freed(connection: Connection, claim: Claim) -> bool:
    """Let others have the endpoint, which is locked until the transaction ends; whether it was still this worker's."""
    mine = EndpointRow.id == claim.endpoint.id, EndpointRow.lease == claim.lease
    return bool(connection.execute(update(EndpointRow).where(*mine).values(**_FREE)).rowcount)


def _elsewhere(claim: Claim, settled: Settlement, now: float) -> Settlement:
    """What becomes of a message that did not arrive at an address that is no longer the endpoint's: the present one is
    tried at once, if any try is left."""
    left = claim.delivery.attempts < claim.delivery.tries
    status, next_at = (Status.PENDING, now) if left else (Status.DEAD, None)
    return replace(settled, status=status, next_at=next_at, not_before=None, disable="")
