"""The text of a token: `ttb_<id>_<secret>`, which scanners find by its prefix.

The id is public and names the token in lists and in the audit log. The secret is 32 random bytes in base 62, of which
only the SHA-256 is kept: a fast hash is the right one for what nobody can guess.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
ID_LENGTH = 8
SECRET_LENGTH = 43
"""Digits that 32 bytes need in base 62."""
PATTERN = re.compile(rf"ttb_([0-9A-Za-z]{{{ID_LENGTH}}})_([0-9A-Za-z]{{{SECRET_LENGTH}}})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What its holder keeps. Its `repr` does not tell the secret."""

    id: str
    secret: str

    @property
    def text(self) -> str:
        """To be shown once, and sent as `Authorization: Bearer`."""
        return f"ttb_{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        """What is stored of the secret."""
        return digest(self.secret)

    def __repr__(self) -> str:
        return f"Token(id={self.id!r})"


def minted(id: str | None = None) -> Token:
    """A token with a new secret, under a new id unless one is given."""
    return Token(id=id or "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH)), secret=new_secret())


def new_secret() -> str:
    """32 random bytes in base 62."""
    number = int.from_bytes(secrets.token_bytes(32))
    digits = []
    for _ in range(SECRET_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def parsed(text: str) -> Token | None:
    """The token that `text` is, or None."""
    match = PATTERN.fullmatch(text)
    return Token(id=match[1], secret=match[2]) if match else None


def digest(secret: str) -> str:
    """SHA-256 of a secret, hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def fits(stored_digest: str, secret: str) -> bool:
    """Whether the secret is the one that was stored, in a time that tells nothing of how close it came."""
    return hmac.compare_digest(stored_digest, digest(secret))
