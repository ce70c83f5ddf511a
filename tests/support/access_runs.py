"""Services with tokens, and whoever holds them."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from trimtab.api.access.doorman import AccessSettings
from trimtab.api.access.issuing import Issuing
from trimtab.api.access.limits import Limits, Rate
from trimtab.api.access.scopes import Scope
from trimtab.api.service import Service
from trimtab.storage.tokens import Tokens
from trimtab.storage.values import Origin

UNLIMITED = AccessSettings(
    limits=Limits(
        ingest=Rate(per_second=1e6, burst=10**6),
        control=Rate(per_second=1e6, burst=10**6),
        failures=Rate(per_second=1e6, burst=10**6),
    )
)


class Clock:
    """Unix seconds, or any others, that stand still until they are turned."""

    def __init__(self, now: float = 1.8e9) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def issuing(service: Service, clock: Callable[[], float] | None = None) -> Issuing:
    """What makes tokens of a service, as its command line does."""
    return Issuing(Tokens(service.database), clock or service.clock)


def issued(
    service: Service,
    scope: Scope,
    *,
    job: str | None = None,
    expires_in: float | None = None,
    clock: Callable[[], float] | None = None,
) -> str:
    """The text of a new token; one for ingest is for the job `run` unless another is named."""
    job = "run" if scope is Scope.INGEST and job is None else job
    name = f"the {scope} token"
    _, token = issuing(service, clock).create(name, [scope], job=job, expires_in=expires_in, origin=Origin())
    return token.text


def bearing(url: str, token: str | None) -> httpx.Client:
    """A client that shows a token, and keeps no cookie of another."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, trust_env=False, timeout=10, headers=headers)
