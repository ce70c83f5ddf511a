"""Who is told of what, and what of it was delivered.

An event that people are told of changes a row of `alerts`, and leaves its job in `outbox`, in the transaction of the
event itself. From there on everything is a level: a group, which is one job to one endpoint, is due when something of
its job has changed; what it has been told is compared with what is firing; and what that takes is a row of
`deliveries`, which is tried until it is delivered or dead.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from trimtab.storage.tables.base import Base


class AlertRow(Base):
    """One alert as it stands; what comes back takes its row again."""

    __tablename__ = "alerts"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(32), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(64))
    severity: Mapped[str] = mapped_column(String(16))
    phase: Mapped[str] = mapped_column(String(16))
    summary: Mapped[str] = mapped_column(Text)
    attempt: Mapped[int] = mapped_column(BigInteger)
    step: Mapped[int] = mapped_column(BigInteger)
    starts_at: Mapped[float] = mapped_column(Float)
    """Unix seconds, like every time here."""
    ends_at: Mapped[float | None] = mapped_column(Float)
    worsened_at: Mapped[float | None] = mapped_column(Float)
    worsened_from: Mapped[str | None] = mapped_column(String(16))
    silenced: Mapped[bool] = mapped_column(Boolean)
    acknowledged_by: Mapped[str | None] = mapped_column(Text)
    evidence: Mapped[str] = mapped_column(Text)
    """JSON, like `notes`."""
    notes: Mapped[str] = mapped_column(Text)


class OutboxRow(Base):
    """A job of which people have something to be told; gone as soon as its groups know when."""

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    changed_at: Mapped[float] = mapped_column(Float)


class EndpointRow(Base):
    """Somebody who is told. URL, key and secrets are credentials: no answer and no log shows them."""

    __tablename__ = "endpoints"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    shape: Mapped[str] = mapped_column(String(32))
    url: Mapped[str] = mapped_column(Text)
    key: Mapped[str] = mapped_column(Text)
    """PagerDuty's routing key; empty where the shape has none."""
    jobs: Mapped[str] = mapped_column(Text)
    """JSON list of globs, of which a job's name must match one."""
    severity: Mapped[str] = mapped_column(String(16))
    """The least."""
    kinds: Mapped[str] = mapped_column(Text)
    """JSON list."""
    group_wait: Mapped[float] = mapped_column(Float)
    """Seconds, like the next two."""
    group_interval: Mapped[float] = mapped_column(Float)
    repeat_interval: Mapped[float | None] = mapped_column(Float)
    """NULL for no reminders."""
    send_resolved: Mapped[bool] = mapped_column(Boolean)
    enabled: Mapped[bool] = mapped_column(Boolean)
    disabled_reason: Mapped[str] = mapped_column(Text)
    secret: Mapped[str] = mapped_column(Text)
    previous_secret: Mapped[str | None] = mapped_column(Text)
    previous_until: Mapped[float | None] = mapped_column(Float)
    """Until when the secret before signs too."""
    created_at: Mapped[float] = mapped_column(Float)
    not_before: Mapped[float | None] = mapped_column(Float)
    """When it may be asked again, as it said itself."""
    lease: Mapped[str | None] = mapped_column(String(32))
    """Who is delivering to it: one at a time, over all processes."""
    leased_until: Mapped[float | None] = mapped_column(Float)


class GroupRow(Base):
    """What one endpoint knows of one job, and when that is looked at again."""

    __tablename__ = "alert_groups"
    __table_args__ = (Index(None, "due_at"),)

    endpoint_id: Mapped[str] = mapped_column(ForeignKey("endpoints.id", ondelete="CASCADE"), primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    told: Mapped[str] = mapped_column(Text)
    """JSON of `trimtab.storage.told.Told`."""
    told_at: Mapped[float | None] = mapped_column(Float)
    """When it was last told of what lasts."""
    due_at: Mapped[float | None] = mapped_column(Float)
    """NULL while there is nothing to wait for."""


class DeliveryRow(Base):
    """One message to one endpoint."""

    __tablename__ = "deliveries"
    __table_args__ = (
        Index(None, "endpoint_id", "status", "next_at"),
        Index(None, "endpoint_id", "job_id", "status"),
        Index(None, "status", "settled_at"),
    )

    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    """The order in which they were made: the cursor of pagination."""
    message_id: Mapped[str] = mapped_column(String(32), unique=True)
    """The `webhook-id`, the same on every attempt."""
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("endpoints.id", ondelete="CASCADE"))
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    """NULL for a test."""
    subject: Mapped[str] = mapped_column(String(32))
    """To one endpoint and on one job, a newer message takes the place of an older one on the same subject."""
    reason: Mapped[str] = mapped_column(String(32))
    resolved: Mapped[str] = mapped_column(Text)
    """JSON list of the fingerprints that it says are resolved."""
    body: Mapped[str] = mapped_column(Text)
    """JSON, without the key of the endpoint."""
    status: Mapped[str] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(Integer)
    tries: Mapped[int] = mapped_column(Integer)
    """Attempts after which it is dead."""
    created_at: Mapped[float] = mapped_column(Float)
    next_at: Mapped[float | None] = mapped_column(Float)
    """When it is tried next; NULL once it is settled."""
    settled_at: Mapped[float | None] = mapped_column(Float)
    answer: Mapped[int | None] = mapped_column(Integer)
    """HTTP status of the last attempt."""
    error: Mapped[str] = mapped_column(Text)
    """What was wrong with the last attempt."""
