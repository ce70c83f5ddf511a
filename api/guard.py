"""Small bodies, strict pages, and what keeps other people's web pages out.

A web page of another origin can make a browser talk to a loopback port, or to one inside the firewall. It cannot forge
the Host header of a name that it owns (DNS rebinding), nor the Origin header of a write: `foreign` looks at both.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from http import HTTPStatus
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.api.problem import Problem, answer

PACKED = "/v1/summaries"
"""Where paths of bodies that may be compressed begin."""
MAX_BODY = 1_000_000
"""Bytes."""
MAX_OPEN_BODY = 4096
"""Bytes of what anybody may send: a token to log in with."""
OPEN = "/v1/session"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """True for `localhost` and for addresses that only this machine can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware that refuses large bodies (413), compressed ones (415) but for those of trainers, and addresses
    that no database takes (422), and adds the headers that every answer has."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        send = _with_headers(send)
        if refusal := _refusal(scope, headers):
            await refusal(scope, receive, send)
            return
        await self.app(scope, _capped(receive, _most(scope)), send)


def foreign(method: str, headers: Headers, allowed_hosts: Collection[str] = ()) -> Problem | None:
    """What is wrong with a request that a browser may have been talked into; None where nothing is.

    Not to be asked of one that carries a valid bearer token, which no page of another origin has.
    """
    host = headers.get("host", "")
    parts = _split(f"//{host}")
    name = "" if parts is None else parts.hostname or ""
    if not is_loopback(name) and name not in allowed_hosts:
        message = "is no name that is served; use http://127.0.0.1:PORT, or start the service with --allowed-host NAME"
        return Problem(field="Host", value=host, message=message)
    origin = headers.get("origin")
    page = None if origin is None else _split(origin)
    if origin is not None and method not in SAFE_METHODS and (page is None or page.netloc != host):
        return Problem(field="Origin", value=origin, message="a page of another origin may not change anything here")
    return None


def _refusal(scope: Scope, headers: Headers) -> ASGIApp | None:
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        problem = Problem(field="url", value=None, message="has a NUL character (%00), which no name or word has")
        return answer(HTTPStatus.UNPROCESSABLE_ENTITY, [problem])
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > _most(scope):
        problem = Problem(field="body", value=f"{length} bytes", message=_too_large(_most(scope)))
        return answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, [problem])
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity" and not scope["path"].startswith(PACKED):
        problem = Problem(field="Content-Encoding", value=encoding, message="only summaries may be; send it as it is")
        return answer(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, [problem])
    return None


def _most(scope: Scope) -> int:
    """Bytes that the body of a request may have."""
    return MAX_OPEN_BODY if scope["path"] == OPEN else MAX_BODY


def _too_large(most: int) -> str:
    return f"the body is larger than {most} bytes; send less at a time"


def _split(url: str) -> SplitResult | None:
    """The parts of `url`, or None where it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _capped(receive: Receive, most: int) -> Receive:
    """Bodies without a declared length are counted as they come in."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(most))
        return message

    return counted


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
