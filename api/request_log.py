"""What is told of requests: an id to each, a line in the log for those that change something or fail, and 500.

Summaries, scrapes and whatever else is only read would drown the rest, and are told of by their failures alone.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.api.access.redaction import redacted
from trimtab.api.guard import HEADERS, SAFE_METHODS
from trimtab.api.logs import REQUEST_ID
from trimtab.api.problem import Problem, answer

HEADER = "x-request-id"
SANE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""An id that a caller, or a proxy in between, may give to its request."""
HANG_UP = 499
"""What the log calls the status of a request whose sender has gone; nobody is answered it."""
SILENT = ("/v1/summaries", "/v1/summaries/batch")
"""Written all the time: only failures are told."""
READY = "/readyz"
"""Tells by itself what it finds, once."""

_log = logging.getLogger("trimtab.api.requests")


class LoggedRequests:
    """Middleware around everything that answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and tell of it; what is raised becomes 500, unless the answer has begun."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _taken_over(Headers(scope=scope)) or secrets.token_hex(8)
        REQUEST_ID.set(request_id)  # for the task of this request alone
        began, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            status = HANG_UP
        except Exception as error:
            if status:
                raise  # the server logs it, and breaks the connection off
            _log.exception("%s %s has failed", *_named(scope), extra=_fields(scope, 500, began))
            message = f"internal error ({type(error).__name__}); the service's log has the details of {request_id}"
            problem = Problem(field="", value=None, message=message)
            await answer(HTTPStatus.INTERNAL_SERVER_ERROR, [problem], HEADERS)(scope, receive, sending)
            return
        if _is_told(scope, status):
            level = logging.WARNING if status >= HTTPStatus.INTERNAL_SERVER_ERROR else logging.INFO
            _log.log(level, "%s %s: %d", *_named(scope), status, extra=_fields(scope, status, began))


def _taken_over(headers: Headers) -> str | None:
    given = headers.get(HEADER, "")
    return given if SANE.fullmatch(given) else None


def _is_told(scope: Scope, status: int) -> bool:
    if scope["path"] == READY:
        return False
    return status >= HTTPStatus.BAD_REQUEST or (scope["method"] not in SAFE_METHODS and scope["path"] not in SILENT)


def _named(scope: Scope) -> tuple[str, str]:
    return scope["method"], redacted(scope["path"])  # somebody may put a token there


def _fields(scope: Scope, status: int, began: float) -> dict[str, Any]:
    """What the log tells of a request beside its path; never its query or its body, which may hold anything."""
    principal, client = scope.get("state", {}).get("principal"), scope.get("client")
    return {
        "method": scope["method"],
        "route": getattr(scope.get("route"), "path", None),
        "job": scope.get("path_params", {}).get("job"),
        "status": status,
        "duration_s": round(time.perf_counter() - began, 6),
        "actor": getattr(principal, "name", None),
        "token": getattr(principal, "token", None),
        "ip": client[0] if client else None,
    }
