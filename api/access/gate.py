"""What stands in front of the app: who asks, and whether they may.

Without any token the service is open to whoever is on its machine. From the first token on, revoked and expired ones
included, nothing but the probes, the page and logging in is answered without one: so nobody can forget to switch it on,
and a token that expires never opens a door.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from trimtab.api.access import sessions
from trimtab.api.access.doorman import CHALLENGE, Doorman
from trimtab.api.access.principal import Principal, local_person, stranger
from trimtab.api.access.scopes import Scope, Table, names
from trimtab.api.guard import SAFE_METHODS, foreign
from trimtab.api.problem import ApiError, answer

PROBES = ("/livez", "/readyz")
"""Answered to anybody under any name: whoever looks after the machine knows it by its address."""
NEEDED = "a token is needed; send the header `Authorization: Bearer ttb_...`, or log in"

_log = logging.getLogger("trimtab.api")


class Gate:
    """ASGI middleware that sets `request.state.principal`, or answers 401, 403, 429 or 503 by itself."""

    def __init__(self, app: ASGIApp, doorman: Doorman) -> None:
        self.app = app
        self._doorman = doorman
        self._table = Table()

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "http" and scope["path"] not in PROBES:
            try:
                scope.setdefault("state", {})["principal"] = await self._admitted(scope)
            except ApiError as refusal:
                await answer(refusal.status, refusal.problems, refusal.headers)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    async def _admitted(self, scope: Connection) -> Principal:
        method, headers = scope["method"], Headers(scope=scope)
        needed = self._table.needed(method, scope["path"])
        principal, secret = await self._known(scope, headers, needed)
        if principal.token is None or principal.session:
            problem = foreign(method, headers, self._doorman.settings.allowed_hosts)
            if problem is not None:
                raise ApiError(HTTPStatus.FORBIDDEN, problem.field, problem.message, problem.value)
        if principal.session and method not in SAFE_METHODS:
            _check_csrf(secret, headers)
        if needed and not any(map(principal.may, needed)):
            raise _lacking(principal, needed)
        self._doorman.check_pace(principal, needed, method)
        return principal

    async def _known(self, scope: Connection, headers: Headers, needed: frozenset[Scope]) -> tuple[Principal, str]:
        """Who asks, and the secret of their cookie where they are known by one."""
        ip = scope["client"][0] if scope.get("client") else ""
        try:
            keys = await self._doorman.keyring.keys()
            if not keys.tokens:
                return local_person(ip), ""
            if bearer := bearer_in(headers):
                return await self._doorman.holder(bearer, ip), ""
            secret = sessions.secret_in(headers.get("cookie", ""))
            return (await self._doorman.visitor(secret, ip) if secret else stranger(ip)), secret
        except SQLAlchemyError as error:
            if not needed:
                return stranger(ip), ""
            _log.error("tokens cannot be read: %s", error)
            message = "the database does not answer; send it again later"
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "", message) from error


def bearer_in(headers: Headers) -> str:
    """The token that a request shows, or nothing."""
    kind, _, credentials = headers.get("authorization", "").partition(" ")
    return credentials.strip() if kind.lower() == "bearer" else ""


def _check_csrf(secret: str, headers: Headers) -> None:
    if not sessions.csrf_fits(secret, headers.get(sessions.CSRF_HEADER, "")):
        message = "is missing or not the session's; GET /v1/session tells it"
        raise ApiError(HTTPStatus.FORBIDDEN, sessions.CSRF_HEADER, message)


def _lacking(principal: Principal, needed: frozenset[Scope]) -> ApiError:
    if principal.token is None:
        return ApiError(HTTPStatus.UNAUTHORIZED, "Authorization", NEEDED, headers=CHALLENGE)
    message = f"needs the scope {names(needed)}, and the token {principal.name!r} has {names(principal.scopes)}"
    return ApiError(HTTPStatus.FORBIDDEN, "Authorization", message)
