"""What people have yet to be told, and how long it has waited."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from trimtab.storage.database import Database
from trimtab.storage.delivery import Status
from trimtab.storage.tables.alerts import DeliveryRow, EndpointRow, OutboxRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Rows that wait for the same thing."""

    rows: int
    since: float | None
    """When the oldest came, Unix seconds; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """All that waits, and what waits no more because it was given up."""

    grouping: Waiting
    """Changes of alerts that nobody has looked at."""
    delivery: Waiting
    """Messages that are on their way to endpoints that are enabled."""
    dead: int
    """Messages that were given up."""


def backlog(database: Database) -> Backlog:
    """The backlog as it is now."""
    count = func.count()
    changed = select(count, func.min(OutboxRow.changed_at))
    pending = (
        select(count, func.min(DeliveryRow.created_at))
        .join(EndpointRow, EndpointRow.id == DeliveryRow.endpoint_id)
        .where(DeliveryRow.status == Status.PENDING, EndpointRow.enabled)
    )
    dead = select(count).where(DeliveryRow.status == Status.DEAD)
    with database.read() as connection:
        (changes, changed_at), (messages, created_at) = (
            connection.execute(changed).one(),
            connection.execute(pending).one(),
        )
        return Backlog(
            grouping=Waiting(rows=changes, since=changed_at),
            delivery=Waiting(rows=messages, since=created_at),
            dead=connection.execute(dead).scalar_one(),
        )
