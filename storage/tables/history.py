"""Roll-ups of what was measured, and how far a ledger goes back.

A job's history has two marks in its ledger: up to `rolled` the signals are in the roll-ups, each row once; up to
`base_seq` what the summaries hold is gone, and the state after that row, the base, stands in for it. The keys and
digests of the summaries stay, so one that is sent again is known for what it is.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, ForeignKey, Integer, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from trimtab.storage.tables.base import Base


class HistoryRow(Base):
    """How far one job's history has been worked through."""

    __tablename__ = "histories"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    rolled: Mapped[int] = mapped_column(Integer)
    base_seq: Mapped[int] = mapped_column(Integer)
    """0 while the ledger is whole; the rest of the base is empty then."""
    base_schema: Mapped[str] = mapped_column(String(64))
    base_state: Mapped[str] = mapped_column(Text)
    base_essentials: Mapped[str] = mapped_column(Text)
    """JSON of what every version can read of the base."""


class SignalRollupRow(Base):
    """Every signal over one stretch of steps."""

    __tablename__ = "signal_rollups"
    __table_args__ = ({"sqlite_with_rowid": False},)

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    level: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    first: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """First step of the stretch, observed or not."""
    last: Mapped[int] = mapped_column(BigInteger)
    """Last step that was observed."""
    steps: Mapped[int] = mapped_column(Integer)
    """How many were observed."""
    seq: Mapped[int] = mapped_column(Integer)
    """The newest ledger row in it."""
    alone: Mapped[bool] = mapped_column(Boolean)
    """What is finer is gone."""
    set_id: Mapped[int] = mapped_column(ForeignKey("signal_sets.id"))
    data: Mapped[bytes] = mapped_column(LargeBinary)
    """`trimtab.storage.rollups.SignalRollup.packed`, compressed."""


class StretchRow(Base):
    """The sums and sketches of the summaries of one stretch whose contents are gone."""

    __tablename__ = "stretches"
    __table_args__ = ({"sqlite_with_rowid": False},)

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    level: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    first: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(Integer)
    """The newest ledger row in it."""
    payload: Mapped[bytes] = mapped_column(LargeBinary)
    """JSON of `trimtab.storage.rollups.Stretch`, packed."""
