"""The dashboard's cookie: a browser that showed a token once is known by it until it logs out or the session ends.

The cookie is HttpOnly, so no script can read it, and SameSite=Strict, so no other site's page can have it sent. A
request that changes something must also carry the session's CSRF token in a header; it follows from the cookie's secret
and is told to whoever holds the cookie.
"""

from __future__ import annotations

import hashlib
import hmac

from starlette.requests import cookie_parser
from starlette.responses import Response

COOKIE = "trimtab_session"
CSRF_HEADER = "x-csrf-token"
LIFETIME_S = 12 * 3600.0
"""Seconds that a session lasts, used or not; never longer than its token."""


def csrf_token(secret: str) -> str:
    """What the header must hold, given the cookie's secret; nobody can work the secret out from it."""
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


def csrf_fits(secret: str, sent: str) -> bool:
    """Whether the header holds it, in a time that tells nothing of how close it came."""
    return hmac.compare_digest(csrf_token(secret).encode(), sent.encode("utf-8", "replace"))


def secret_in(cookie_header: str) -> str:
    """The secret of the session's cookie; empty where there is none."""
    return cookie_parser(cookie_header).get(COOKIE, "")


def set_cookie(response: Response, secret: str, *, secure: bool) -> None:
    """Have the browser keep the session; `secure` where it came by https."""
    response.set_cookie(
        COOKIE, secret, max_age=int(LIFETIME_S), path="/", secure=secure, httponly=True, samesite="strict"
    )


def clear_cookie(response: Response, *, secure: bool) -> None:
    """Have the browser forget it."""
    response.delete_cookie(COOKIE, path="/", secure=secure, httponly=True, samesite="strict")
