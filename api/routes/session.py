"""Sessions: a browser shows a token once, and is known by a cookie from then on."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi import Body as BodyParameter
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from trimtab.api.access import sessions, tokens
from trimtab.api.access.principal import Principal
from trimtab.api.access.scopes import CONTROL, Scope
from trimtab.api.problem import MALFORMED, ApiError, Problems
from trimtab.api.routes.common import DoormanOf, PrincipalOf
from trimtab.api.views import Body, View
from trimtab.storage.audit import Deed
from trimtab.storage.tokens import StoredSession

router = APIRouter(tags=["access"])

REFUSED: dict[int | str, dict[str, Any]] = {
    **MALFORMED,
    HTTPStatus.UNAUTHORIZED: {"model": Problems, "description": "The token is not valid."},
    HTTPStatus.FORBIDDEN: {"model": Problems, "description": "The token may not read, or another page asks."},
    HTTPStatus.TOO_MANY_REQUESTS: {"model": Problems, "description": "Too many tokens that are not valid."},
}


class LogIn(Body):
    """What lets a browser in."""

    token: Annotated[str, Field(max_length=200)]


class SessionView(View):
    """Who asks, and what they may do."""

    name: str | None = Field(description="Of the token, `local` where the service has none; null: log in first.")
    scopes: list[Scope] = Field(description="What may be done, which with some scopes is more than the scope.")
    token: str | None = Field(description="Id of the token; null without one.")
    csrf: str | None = Field(
        description="To be sent as `X-CSRF-Token` with everything that changes something, where a cookie stands for "
        "the token; null where none does."
    )


@router.get("/v1/session", summary="Who am I?")
def get_session(request: Request, principal: PrincipalOf) -> SessionView:
    """Answers strangers too, so that a page knows whether to ask for a token."""
    secret = sessions.secret_in(request.headers.get("cookie", "")) if principal.session else ""
    return _view(principal, secret)


@router.post("/v1/session", responses=REFUSED, summary="Log in")
async def log_in(
    asked: Annotated[LogIn, BodyParameter(examples=[{"token": "ttb_Ab12Cd34_..."}])],
    request: Request,
    response: Response,
    doorman: DoormanOf,
    principal: PrincipalOf,
) -> SessionView:
    """Sets the cookie, which no script can read and no other site can have sent. It lasts half a day."""
    text = asked.token.strip()
    holder, shown = await doorman.holder(text, principal.ip), tokens.parsed(text)
    if not holder.may(Scope.READ) or holder.token is None or shown is None:
        message = f"the token {holder.name!r} may not read, and so opens no page; log in with one that may"
        raise ApiError(HTTPStatus.FORBIDDEN, "token", message)
    doorman.check_pace(holder, CONTROL, request.method)
    secret, now = tokens.new_secret(), doorman.clock()
    stored = StoredSession(
        digest=tokens.digest(secret), token=holder.token, created_at=now, expires_at=now + sessions.LIFETIME_S
    )
    deed = Deed(action="log_in", at=now, origin=holder.origin)
    await run_in_threadpool(doorman.tokens.open_session, stored, deed, shown=shown.digest)
    doorman.keyring.forget()
    sessions.set_cookie(response, secret, secure=request.url.scheme == "https")
    return _view(holder, secret)


@router.delete("/v1/session", status_code=HTTPStatus.NO_CONTENT, summary="Log out")
def log_out(request: Request, principal: PrincipalOf, doorman: DoormanOf) -> Response:
    """The cookie stands for nothing any more, wherever it was copied to."""
    secret = sessions.secret_in(request.headers.get("cookie", ""))
    if principal.session:
        deed = Deed(action="log_out", at=doorman.clock(), origin=principal.origin)
        doorman.tokens.close_session(tokens.digest(secret), deed)
        doorman.keyring.forget()
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    sessions.clear_cookie(response, secure=request.url.scheme == "https")
    return response


def _view(principal: Principal, secret: str) -> SessionView:
    scopes = [scope for scope in Scope if principal.may(scope)]
    return SessionView(
        name=principal.name if scopes else None,
        scopes=scopes,
        token=principal.token,
        csrf=sessions.csrf_token(secret) if secret else None,
    )
