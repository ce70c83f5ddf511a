"""Who may ask for what, and the audit log of all that was done."""

from __future__ import annotations

from sqlalchemy import BigInteger, Float, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from trimtab.hooks.records import MAX_JOB_LENGTH
from trimtab.storage.tables.base import Base

MAX_NAME_LENGTH = 128
MAX_IP_LENGTH = 64


class TokenRow(Base):
    """One token. Rows are never deleted: the audit log refers to them, and a service that had one stays closed."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(8), primary_key=True)
    name: Mapped[str] = mapped_column(String(MAX_NAME_LENGTH))
    scopes: Mapped[str] = mapped_column(String(64))
    """Separated by spaces."""
    job: Mapped[str | None] = mapped_column(String(MAX_JOB_LENGTH))
    """The one job that it is for, known or not."""
    digest: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the secret, hexadecimal."""
    old_digest: Mapped[str | None] = mapped_column(String(64))
    """That of the secret before, which is taken until `old_until`."""
    old_until: Mapped[float | None] = mapped_column(Float)
    """Unix seconds, like every time here."""
    created_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float | None] = mapped_column(Float)
    revoked_at: Mapped[float | None] = mapped_column(Float)
    last_used_at: Mapped[float | None] = mapped_column(Float)
    """To within minutes."""


class SessionRow(Base):
    """One browser that was let in by a token."""

    __tablename__ = "sessions"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    """SHA-256 of the cookie's secret, hexadecimal."""
    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.id"))
    created_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float] = mapped_column(Float)


class AuditRow(Base):
    """One link of the audit log's chain; a trigger refuses to change or delete any."""

    __tablename__ = "audit"
    __table_args__ = (Index(None, "job", "number"),)

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """From 1, without gaps."""
    at: Mapped[float] = mapped_column(Float)
    actor: Mapped[str] = mapped_column(String(MAX_NAME_LENGTH))
    token: Mapped[str] = mapped_column(String(8))
    ip: Mapped[str] = mapped_column(String(MAX_IP_LENGTH))
    action: Mapped[str] = mapped_column(String(32))
    job: Mapped[str | None] = mapped_column(String(MAX_JOB_LENGTH))
    reason: Mapped[str] = mapped_column(Text)
    generation: Mapped[int | None] = mapped_column(BigInteger)
    detail: Mapped[str] = mapped_column(Text)
    """JSON."""
    previous: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))
