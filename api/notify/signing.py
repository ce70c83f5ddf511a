"""Signatures by the Standard Webhooks specification, version 1 (https://www.standardwebhooks.com).

Signed is `id.timestamp.body` with HMAC-SHA256. The id is the same on every attempt, so a receiver drops what it has;
the timestamp is that of the attempt, so an old request cannot be sent again by somebody else. While a secret is being
replaced there are two signatures, and either suffices.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"
SECRET_BYTES = 32
"""The specification allows 24 to 64."""


def new_secret() -> str:
    """A fresh secret, as receivers are given it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def new_id() -> str:
    """A fresh `webhook-id`."""
    return "msg_" + secrets.token_hex(14)


def signed(message_id: str, timestamp: int, body: bytes, keys: Sequence[str]) -> dict[str, str]:
    """The headers of one attempt at `timestamp` (Unix seconds), with one signature a secret.

    Raises:
        ValueError: a secret is none.
    """
    content = f"{message_id}.{timestamp}.".encode() + body
    signatures = [base64.b64encode(hmac.digest(_key(each), content, hashlib.sha256)).decode() for each in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"secret: not {PREFIX} and base64") from None
