"""Knows who holds which token, whose browser is known, and who asks too often."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from sqlalchemy.exc import SQLAlchemyError

from trimtab.api.access import tokens
from trimtab.api.access.issuing import Issuing
from trimtab.api.access.keyring import Keyring, Keys
from trimtab.api.access.limits import Limiter, Limits, Rate, neighbourhood
from trimtab.api.access.principal import Principal, stranger
from trimtab.api.access.scopes import INGEST, OPEN, Scope
from trimtab.api.guard import SAFE_METHODS
from trimtab.api.problem import ApiError
from trimtab.storage.audit import Audit, Deed
from trimtab.storage.database import Database
from trimtab.storage.tokens import StoredToken, Tokens
from trimtab.storage.values import Origin

TOLD_AGAIN_S = 3600
"""Seconds until the same token from the same address is put in the audit log once more."""
CHALLENGE = {"WWW-Authenticate": "Bearer"}
NOT_VALID = "this token is not valid here: mistyped, revoked or expired; `trimtab token create` makes another"

_log = logging.getLogger("trimtab.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """What an operator decides of access."""

    allowed_hosts: frozenset[str] = frozenset()
    """Names, beside those of this machine, by which browsers may call the service; lower case."""
    limits: Limits = field(default_factory=Limits)


class Doorman:
    """Tokens and sessions of one database, and the pace of those who hold them. For the event loop."""

    def __init__(
        self,
        database: Database,
        settings: AccessSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or AccessSettings()
        self.clock = clock
        self.tokens = Tokens(database)
        self.issuing = Issuing(self.tokens, clock)
        self.audit = Audit(database)
        self.keyring = Keyring(self.tokens, clock=clock, monotonic=monotonic)
        limits = self.settings.limits
        self._ingest, self._control = Limiter(limits.ingest, monotonic), Limiter(limits.control, monotonic)
        self._failures = Limiter(limits.failures, monotonic)
        self._told = Limiter(Rate(per_second=1 / TOLD_AGAIN_S, burst=1), monotonic)

    async def holder(self, text: str, ip: str) -> Principal:
        """Who holds a token.

        A valid one is never held up by those that are not, which a neighbour behind the same address may send.

        Raises:
            ApiError: it is not valid (401), or the address has shown too many that are not (429).
        """
        token = tokens.parsed(text)
        found = _fitting(await self.keyring.keys(), token, self.clock())
        if found is None:
            if wait := self._failures.take(neighbourhood(ip)):
                raise _too_many(wait, "tokens that are not valid")
            if token is not None:  # perhaps it is new
                found = _fitting(await self.keyring.newest(), token, self.clock())
        if found is None:
            await self._note_failure(token.id if token else "", ip)
            raise ApiError(HTTPStatus.UNAUTHORIZED, "Authorization", NOT_VALID, headers=CHALLENGE)
        self.keyring.used(found, self.clock())
        return _principal(found, ip)

    async def visitor(self, secret: str, ip: str) -> Principal:
        """Whose browser holds this cookie; a stranger's where there is no such session, or no more."""
        digest, now = tokens.digest(secret), self.clock()
        keys = await self.keyring.keys()
        if digest not in keys.sessions and not self._failures.take(neighbourhood(ip)):
            keys = await self.keyring.newest()
        token = _stood_for(keys, digest, now)
        if token is None:
            return stranger(ip)
        self.keyring.used(token, now)
        return _principal(token, ip, session=True)

    async def still_knows(self, principal: Principal, bearer: str, cookie: str) -> bool:
        """Whether whoever was let in by this token, or else by this cookie, would be known by it now.

        Raises `DBAPIError` where the database has been away for too long to tell.
        """
        keys, now = await self.keyring.keys(), self.clock()
        if principal.token is None:
            return not keys.tokens
        if not principal.session:
            return _fitting(keys, tokens.parsed(bearer), now) is not None
        return _stood_for(keys, tokens.digest(cookie), now) is not None

    def check_pace(self, principal: Principal, needed: frozenset[Scope], method: str) -> None:
        """Raises `ApiError` (429) where a token asks too often. Whoever needs none may ask as often as they like."""
        if principal.token is None:
            return
        if needed == INGEST or (needed > INGEST and not principal.may(Scope.CONTROL)):
            wait = self._ingest.take(principal.token)
        elif method not in SAFE_METHODS and needed != OPEN:
            wait = self._control.take(principal.token)
        else:
            return
        if wait:
            raise _too_many(wait, "requests with this token")

    async def _note_failure(self, token: str, ip: str) -> None:
        if self._told.take(f"{ip} {token}"):
            return
        _log.warning("a token that is not valid was shown from %s (id %s)", ip or "?", token or "none")
        origin = Origin(actor="stranger", ip=ip)
        deed = Deed(action="token_refused", at=self.clock(), origin=origin, detail={"token": token})
        try:
            await asyncio.to_thread(self.audit.append, deed)
        except SQLAlchemyError as error:
            _log.error("a refusal could not be put in the audit log: %s", error)


def _fitting(keys: Keys, token: tokens.Token | None, now: float) -> StoredToken | None:
    """The stored token that this one is, where it is valid."""
    stored = None if token is None else keys.tokens.get(token.id)
    if token is None or stored is None:
        return None
    taken = [tokens.fits(digest, token.secret) for digest in stored.digests(now)]
    return stored if any(taken) else None


def _stood_for(keys: Keys, digest: str, now: float) -> StoredToken | None:
    """The token that a session stands for, by the digest of its cookie's secret, where both are valid."""
    session = keys.sessions.get(digest)
    token = keys.tokens.get(session.token) if session is not None and now < session.expires_at else None
    return token if token is not None and token.valid(now) else None


def _principal(token: StoredToken, ip: str, *, session: bool = False) -> Principal:
    return Principal(
        name=token.name,
        scopes=frozenset(map(Scope, token.scopes)),
        ip=ip,
        token=token.id,
        job=token.job,
        session=session,
    )


def _too_many(wait: float, what: str) -> ApiError:
    seconds = math.ceil(wait)
    headers = {"Retry-After": str(seconds)}
    return ApiError(HTTPStatus.TOO_MANY_REQUESTS, "", f"too many {what}; again in {seconds} s", headers=headers)
