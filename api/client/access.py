"""Tokens, and the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.api.access.issuing import OVERLAP_S
from trimtab.api.access.scopes import Scope
from trimtab.api.client.base import Caller, api_path
from trimtab.api.routes.audit import AuditEntry, AuditPage
from trimtab.api.routes.session import SessionView
from trimtab.api.routes.tokens import Issued, TokenList, TokenView


class AccessCalls(Caller):
    """Tokens, and the audit log."""

    def whoami(self) -> SessionView:
        """Who the service takes this client for, and what it may do."""
        return self._ask(SessionView, "GET", "/v1/session")

    def tokens(self) -> list[TokenView]:
        """Every token that there ever was, oldest first."""
        return self._ask(TokenList, "GET", "/v1/tokens").tokens

    def create_token(
        self, name: str, scopes: Sequence[Scope | str], *, job: str | None = None, expires_in: float | None = None
    ) -> Issued:
        """A new token, which lasts `expires_in` seconds; None for good. One for `ingest` names its job."""
        body = {"name": name, "scopes": list(scopes), "job": job, "expires_in": expires_in}
        return self._ask(Issued, "POST", "/v1/tokens", body)

    def rotate_token(self, id: str, *, overlap: float = OVERLAP_S, reason: str = "") -> Issued:
        """A new secret for a token; the old one is taken for `overlap` seconds more."""
        return self._ask(Issued, "POST", api_path("tokens", id, "rotate"), {"overlap": overlap, "reason": reason})

    def revoke_token(self, id: str, *, reason: str = "") -> TokenView:
        """Let nobody in with a token any more."""
        return self._ask(TokenView, "DELETE", api_path("tokens", id), params={"reason": reason})

    def audit(self, *, job: str | None = None) -> Iterator[AuditEntry]:
        """The audit log, ascending, page by page; only what was done to one job, where it is named."""
        for page in self._pages(AuditPage, "/v1/audit", {"job": job}):
            yield from page.entries

    def audit_lines(self) -> Iterator[str]:
        """The whole audit log as lines of JSON, as `trimtab audit verify --file` reads them."""
        return self._lines("/v1/audit.jsonl")
