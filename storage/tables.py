"""The tables. The ledger is the truth; everything beside it was worked out from it.

JSON is stored as text that this project wrote itself (`trimtab.storage.codec`), because a database's JSON type either
refuses NaN or loses it. A signal that is not finite is stored as its kind beside an empty value, because SQLite turns
NaN into NULL.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from trimtab.hooks.records import MAX_JOB_LENGTH


class Base(DeclarativeBase):
    """Common metadata; every constraint has a predictable name, so that a migration can drop it."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class JobRow(Base):
    """One training job and the settings that its whole ledger is folded with."""

    __tablename__ = "jobs"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(MAX_JOB_LENGTH), unique=True)
    config: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float] = mapped_column(Float)
    """Unix seconds."""


class LedgerRow(Base):
    """One input of the fold, never changed and never deleted; `seq` counts from 1 in each job."""

    __tablename__ = "ledger"
    __table_args__ = (UniqueConstraint("job_id", "attempt", "step", "rank"),)

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int | None] = mapped_column(BigInteger)
    """Like `step` and `rank`, NULL for an operator's action, which no key can repeat."""
    step: Mapped[int | None] = mapped_column(BigInteger)
    rank: Mapped[int | None] = mapped_column(Integer)
    payload: Mapped[str] = mapped_column(Text)
    digest: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the payload with sorted keys, hexadecimal."""
    received_at: Mapped[float] = mapped_column(Float)
    """Unix seconds; for people, never for the fold."""


class QuarantineRow(Base):
    """A summary that came under a key which another summary already holds: two writers share a job and attempt."""

    __tablename__ = "quarantine"
    __table_args__ = (ForeignKeyConstraint(["job_id", "seq"], ["ledger.job_id", "ledger.seq"]),)

    job_id: Mapped[int] = mapped_column(Integer, primary_key=True)
    seq: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    """The ledger row that holds the key."""
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    payload: Mapped[str] = mapped_column(Text)
    received_at: Mapped[float] = mapped_column(Float)


class EventRow(Base):
    """The audit trail; `number` counts from 1 in each job."""

    __tablename__ = "events"
    __table_args__ = (
        ForeignKeyConstraint(["job_id", "seq"], ["ledger.job_id", "ledger.seq"]),
        Index(None, "job_id", "kind", "number"),
    )

    job_id: Mapped[int] = mapped_column(Integer, primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(Integer)
    """The ledger row that caused it."""
    kind: Mapped[str] = mapped_column(String(32))
    attempt: Mapped[int] = mapped_column(BigInteger)
    step: Mapped[int] = mapped_column(BigInteger)
    message: Mapped[str] = mapped_column(Text)
    detail: Mapped[str] = mapped_column(Text)


class RunStateRow(Base):
    """The state of one job after its last ledger row: a cache, folded again where its schema is another version's."""

    __tablename__ = "run_states"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    schema: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(Text)


class SignalRow(Base):
    """One signal at one step, for charts."""

    __tablename__ = "signals"
    __table_args__ = ({"sqlite_with_rowid": False},)

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    attempt: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    value: Mapped[float | None] = mapped_column(Float)
    kind: Mapped[str] = mapped_column(String(8))
