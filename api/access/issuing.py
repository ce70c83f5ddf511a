"""Making tokens, giving them new secrets, and taking them out of use: the same for the API and for the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.api.access import tokens
from trimtab.api.access.scopes import Scope
from trimtab.api.access.tokens import Token
from trimtab.api.portable import check_portable
from trimtab.hooks.records import check_job
from trimtab.storage.audit import Deed
from trimtab.storage.tables.access import MAX_NAME_LENGTH
from trimtab.storage.tokens import StoredToken, Tokens
from trimtab.storage.values import Origin

OVERLAP_S = 86_400
"""Seconds for which the secret before is taken still, unless said otherwise."""
MAX_OVERLAP_S = 90 * 86_400


class TokenRuleError(ValueError):
    """A token that must not be; the message names the field."""


class Issuing:
    """Issues the tokens of one database."""

    def __init__(self, stored: Tokens, clock: Callable[[], float]) -> None:
        self._stored = stored
        self._clock = clock

    def create(
        self, name: str, scopes: Sequence[Scope], *, job: str | None, expires_in: float | None, origin: Origin
    ) -> tuple[StoredToken, Token]:
        """A new token, as it is stored and as its holder has it.

        Raises:
            TokenRuleError: no name or no scope, a job without `ingest`, `ingest` without a job or beside another scope.
            RecordError: the name or the job is no text, or cannot name a job.
        """
        _check(name, scopes, job)
        now, token = self._clock(), tokens.minted()
        stored = StoredToken(
            id=token.id,
            name=name,
            scopes=tuple(scope.value for scope in Scope if scope in scopes),
            job=job,
            digest=token.digest,
            created_at=now,
            expires_at=None if expires_in is None else now + expires_in,
        )
        detail = {"id": token.id, "name": name, "scopes": list(stored.scopes), "expires_at": stored.expires_at}
        self._stored.create(stored, Deed(action="create_token", at=now, origin=origin, job=job, detail=detail))
        return stored, token

    def rotate(self, id: str, *, overlap: float, reason: str, origin: Origin) -> tuple[StoredToken, Token]:
        """The token with a new secret; the old one is taken for `overlap` seconds more.

        Raises:
            RecordError: the reason is no text.
            UnknownTokenError: no token has that id.
            SpentTokenError: it is revoked or has expired.
        """
        check_portable({"reason": reason})
        now, token = self._clock(), tokens.minted(id)
        deed = Deed(
            action="rotate_token",
            at=now,
            origin=origin,
            reason=reason,
            detail={"id": id, "old_secret_until": now + overlap},
        )
        return self._stored.rotate(id, token.digest, old_until=now + overlap, deed=deed), token

    def revoke(self, id: str, *, reason: str, origin: Origin) -> StoredToken:
        """The token, which lets nobody in any more. Raises `UnknownTokenError`; `RecordError` for a reason."""
        check_portable({"reason": reason})
        deed = Deed(action="revoke_token", at=self._clock(), origin=origin, reason=reason, detail={"id": id})
        return self._stored.revoke(id, deed)


def _check(name: str, scopes: Sequence[Scope], job: str | None) -> None:
    check_portable({"name": name})
    if not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise TokenRuleError(f"name: has {len(name)} characters; give 1 to {MAX_NAME_LENGTH}, such as who will hold it")
    if not scopes:
        raise TokenRuleError(f"scopes: none; give at least one of {', '.join(Scope)}")
    if Scope.INGEST not in scopes:
        if job is not None:
            raise TokenRuleError("job: only a token with the scope ingest is for one job; leave it out")
        return
    if len(set(scopes)) > 1:
        raise TokenRuleError("scopes: ingest is for a trainer and stands alone; make another token for the rest")
    if job is None:
        raise TokenRuleError("job: missing; a trainer's token is for one job, so name it")
    check_job(job)
