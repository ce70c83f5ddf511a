"""Jobs, their ledgers, and what was folded from them. The ledger is the truth; everything beside it was worked out.

JSON is text that this project wrote itself (`trimtab.storage.codec`), because a database's JSON type either refuses NaN
or loses it. Payloads are packed (`trimtab.storage.packing`): a summary of 20 KB takes 5. The signals of one step are
one row of 64-bit floats, in which NaN and the infinities are what they are (ADR 0014).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from trimtab.hooks.records import MAX_JOB_LENGTH
from trimtab.storage.tables.base import Base


class JobRow(Base):
    """One training job and the settings that its whole ledger is folded with."""

    __tablename__ = "jobs"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(MAX_JOB_LENGTH), unique=True)
    config: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float] = mapped_column(Float)
    """Unix seconds."""
    archived_at: Mapped[float | None] = mapped_column(Float)
    """Unix seconds; NULL while the job is among those that are watched."""


class LedgerRow(Base):
    """One input of the fold, never deleted; `seq` counts from 1 in each job.

    It is changed once at most: a payload is empty where retention let it go (`trimtab.storage.history`).
    """

    __tablename__ = "ledger"
    __table_args__ = (UniqueConstraint("job_id", "attempt", "step", "rank"),)

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int | None] = mapped_column(BigInteger)
    """Like `step` and `rank`, NULL for an operator's action, which no key can repeat."""
    step: Mapped[int | None] = mapped_column(BigInteger)
    rank: Mapped[int | None] = mapped_column(Integer)
    payload: Mapped[bytes] = mapped_column(LargeBinary)
    digest: Mapped[str] = mapped_column(String(64))
    """`trimtab.storage.codec.digest` of the payload; older versions digested it with sorted keys."""
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
    payload: Mapped[bytes] = mapped_column(LargeBinary)
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
    """A snapshot of one job's state: a cache of the fold. The state is this one with the rest of the ledger folded in.

    A snapshot of another version's schema is none, and the ledger is folded again from its start.
    """

    __tablename__ = "run_states"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(Integer)
    """The ledger row after which the state was this one; it only grows."""
    schema: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(Text)


class SignalSetRow(Base):
    """Names of signals that were observed together; a job has few such sets."""

    __tablename__ = "signal_sets"
    __table_args__ = (UniqueConstraint("job_id", "digest"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    digest: Mapped[str] = mapped_column(String(64))
    """Of `names`."""
    names: Mapped[str] = mapped_column(Text)
    """JSON list."""


class ObservationRow(Base):
    """Every signal of one step that was observed, for charts. A signal that was not is in no set: it is not NaN."""

    __tablename__ = "observations"
    __table_args__ = ({"sqlite_with_rowid": False},)

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    set_id: Mapped[int] = mapped_column(ForeignKey("signal_sets.id"))
    values: Mapped[bytes] = mapped_column(LargeBinary)
    """64-bit little-endian floats, in the order of the set's names."""
