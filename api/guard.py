"""What stands in front of the app while it has no tokens: loopback names only, small bodies, strict pages.

A web page of another origin can make a browser talk to a loopback port. It cannot forge the Host header of a name that
it owns (DNS rebinding), nor the Origin header of a write; both are checked here.
"""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.api.problem import Problem, answer

MAX_BODY = 1_000_000
"""Bytes."""
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
TOO_LARGE = f"the body is larger than {MAX_BODY} bytes; send less at a time"


def is_loopback(host: str) -> bool:
    """True for `localhost` and for addresses that only this machine can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware that refuses foreign hosts and origins with 403 and large bodies with 413."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if refusal := _refusal(scope["method"], headers):
            await refusal(scope, receive, send)
            return
        await self.app(scope, _capped(receive), _with_headers(send))


def _refusal(method: str, headers: Headers) -> ASGIApp | None:
    host = headers.get("host", "")
    parts = _split(f"//{host}")
    if parts is None or not is_loopback(parts.hostname or ""):
        message = "only loopback names are served; use http://127.0.0.1:PORT"
        return answer(HTTPStatus.FORBIDDEN, [Problem(field="Host", value=host, message=message)])
    origin = headers.get("origin")
    page = None if origin is None else _split(origin)
    if origin is not None and method not in SAFE_METHODS and (page is None or page.netloc != host):
        message = "a page of another origin may not change anything here"
        return answer(HTTPStatus.FORBIDDEN, [Problem(field="Origin", value=origin, message=message)])
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MAX_BODY:
        problem = Problem(field="body", value=f"{length} bytes", message=TOO_LARGE)
        return answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, [problem])
    return None


def _split(url: str) -> SplitResult | None:
    """The parts of `url`, or None where it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _capped(receive: Receive) -> Receive:
    """Bodies without a declared length are counted as they come in."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_LARGE)
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
