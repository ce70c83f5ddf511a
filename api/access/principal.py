"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.api.access.scopes import GRANTS, Scope
from trimtab.storage.values import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who a request is from, and what they may do."""

    name: str
    """Of the token; `local` where the service has none."""
    scopes: frozenset[Scope]
    """What was granted; `may` says what follows from it."""
    ip: str
    token: str | None = None
    """Id of the token; None for whoever is on this machine, while there is none."""
    job: str | None = None
    """The one job that a trainer's token is for; None where it is not bound."""
    session: bool = False
    """Whether a browser's session stands for the token."""

    @property
    def origin(self) -> Origin:
        """How the audit log names them."""
        return Origin(actor=self.name, token=self.token or "", ip=self.ip)

    def may(self, scope: Scope) -> bool:
        """Whether the scope is granted."""
        return any(scope in GRANTS[held] for held in self.scopes)


def local_person(ip: str) -> Principal:
    """Whoever asks a service without tokens, which only this machine can reach."""
    return Principal(name="local", scopes=frozenset({Scope.ADMIN}), ip=ip)


def stranger(ip: str) -> Principal:
    """Whoever shows no token that is valid."""
    return Principal(name="stranger", scopes=frozenset(), ip=ip)
