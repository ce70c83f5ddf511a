"""Tokens and the browser sessions that stand for them. Secrets are never stored, only their SHA-256."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from trimtab.storage import audit
from trimtab.storage.audit import Deed
from trimtab.storage.database import Database
from trimtab.storage.tables.access import SessionRow, TokenRow

TOKENS = select(*TokenRow.__table__.columns)


class UnknownTokenError(LookupError):
    """No token has that id."""

    def __init__(self, token: str) -> None:
        super().__init__(f"there is no token {token!r}; `trimtab token list` shows those that there are")
        self.token = token


class SpentTokenError(ValueError):
    """A token that is revoked, or has expired, and so cannot be given a new secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """One token. Times are Unix seconds."""

    id: str
    name: str
    scopes: tuple[str, ...]
    job: str | None
    """The one job that it is for; None where it is not bound."""
    digest: str
    """SHA-256 of the secret, hexadecimal."""
    old_digest: str | None = None
    """That of the secret before, which is taken until `old_until`."""
    old_until: float | None = None
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None
    """To within minutes."""

    def valid(self, now: float) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def digests(self, now: float) -> tuple[str, ...]:
        """Those of the secrets that are taken now."""
        if not self.valid(now):
            return ()
        if self.old_digest is not None and self.old_until is not None and now < self.old_until:
            return self.digest, self.old_digest
        return (self.digest,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """One browser that was let in by a token, as long as the token is valid. Times are Unix seconds."""

    digest: str
    """SHA-256 of the cookie's secret, hexadecimal."""
    token: str
    created_at: float
    expires_at: float


class Tokens:
    """Tokens and sessions of one database. What changes a token is put in the audit log in the same transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[StoredToken]:
        """Every token that there ever was, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(TOKENS.order_by(TokenRow.created_at, TokenRow.id)).mappings()
            return [_token(row) for row in rows]

    def sessions(self, now: float) -> list[StoredSession]:
        """Sessions that have not expired."""
        columns = (SessionRow.digest, SessionRow.token_id.label("token"), SessionRow.created_at, SessionRow.expires_at)
        with self._database.read() as connection:
            rows = connection.execute(select(*columns).where(SessionRow.expires_at > now)).mappings()
            return [StoredSession(**row) for row in rows]

    def create(self, token: StoredToken, deed: Deed) -> None:
        """Keep a new token."""
        with self._database.write() as connection:
            connection.execute(insert(TokenRow).values({**asdict(token), "scopes": " ".join(token.scopes)}))
            audit.append(connection, [deed])

    def revoke(self, id: str, deed: Deed) -> StoredToken:
        """Take a token, and its sessions, out of use for good; again changes nothing. Raises `UnknownTokenError`."""
        with self._database.write() as connection:
            token = _found(connection, id)
            if token.revoked_at is not None:
                return token
            connection.execute(delete(SessionRow).where(SessionRow.token_id == id))
            connection.execute(update(TokenRow).where(TokenRow.id == id).values(revoked_at=deed.at))
            audit.append(connection, [deed])
            return _found(connection, id)

    def rotate(self, id: str, digest: str, *, old_until: float, deed: Deed) -> StoredToken:
        """Give a token another secret; the one that it has is taken until `old_until`, and one before it no more.

        Sessions end with the secret that opened them at the latest.

        Raises:
            UnknownTokenError: no token has that id.
            SpentTokenError: it is revoked or has expired.
        """
        with self._database.write() as connection:
            token = _found(connection, id)
            if not token.valid(deed.at):
                raise SpentTokenError(f"token: {id} is revoked or has expired; create another")
            values = {"digest": digest, "old_digest": token.digest, "old_until": old_until}
            connection.execute(update(TokenRow).where(TokenRow.id == id).values(**values))
            if old_until <= deed.at:
                connection.execute(delete(SessionRow).where(SessionRow.token_id == id))
            if token.old_until is not None and deed.at < token.old_until:  # may be of the secret before it, if so short
                short = SessionRow.token_id == id, SessionRow.expires_at <= token.old_until
                connection.execute(delete(SessionRow).where(*short))
            outlasting = SessionRow.token_id == id, SessionRow.expires_at > old_until
            connection.execute(update(SessionRow).where(*outlasting).values(expires_at=old_until))
            audit.append(connection, [deed])
            return _found(connection, id)

    def used(self, times: Mapping[str, float]) -> None:
        """Note when tokens were used last."""
        with self._database.write() as connection:
            for id, at in sorted(times.items()):
                connection.execute(update(TokenRow).where(TokenRow.id == id).values(last_used_at=at))

    def open_session(self, session: StoredSession, deed: Deed, *, shown: str) -> None:
        """Let a browser in that showed the secret with the digest `shown`, for no longer than that is taken; and forget
        the sessions that have expired. Raises `UnknownTokenError`.
        """
        with self._database.write() as connection:
            token = _found(connection, session.token)
            connection.execute(delete(SessionRow).where(SessionRow.expires_at <= session.created_at))
            connection.execute(
                insert(SessionRow).values(
                    digest=session.digest,
                    token_id=session.token,
                    created_at=session.created_at,
                    expires_at=min(session.expires_at, _end_of(token, shown, session.created_at)),
                )
            )
            audit.append(connection, [deed])

    def close_session(self, digest: str, deed: Deed) -> None:
        """Let a browser out; one that is not in changes nothing."""
        with self._database.write() as connection:
            if connection.execute(delete(SessionRow).where(SessionRow.digest == digest)).rowcount:
                audit.append(connection, [deed])


def _end_of(token: StoredToken, digest: str, now: float) -> float:
    """Until when a secret is taken, as far as that is known: not any more where it was replaced meanwhile."""
    if digest == token.digest:
        return math.inf
    return now if digest != token.old_digest or token.old_until is None else token.old_until


def _found(connection: Connection, id: str) -> StoredToken:
    """The token, locked until the transaction ends where the database locks rows. Raises `UnknownTokenError`."""
    row = connection.execute(TOKENS.where(TokenRow.id == id).with_for_update()).mappings().one_or_none()
    if row is None:
        raise UnknownTokenError(id)
    return _token(row)


def _token(row: RowMapping) -> StoredToken:
    return StoredToken(**{**row, "scopes": tuple(row["scopes"].split())})
