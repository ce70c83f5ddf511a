"""What a token may do, and what every endpoint asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum


class Scope(StrEnum):
    """A kind of access."""

    READ = "read"
    """Look at everything but tokens, webhooks and the audit log."""
    INGEST = "ingest"
    """Report the summaries of one job, and be given its commands: what a trainer holds, and nothing beside it."""
    CONTROL = "control"
    """Change what the agent and the trainers do; to read goes with it."""
    ADMIN = "admin"
    """Everything."""


GRANTS = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.INGEST: frozenset({Scope.INGEST}),
    Scope.CONTROL: frozenset({Scope.READ, Scope.CONTROL}),
    Scope.ADMIN: frozenset(Scope),
}
"""What each scope lets its holder do."""

OPEN: frozenset[Scope] = frozenset()
READ = frozenset({Scope.READ})
INGEST = frozenset({Scope.INGEST})
CONTROL = frozenset({Scope.CONTROL})
ADMIN = frozenset({Scope.ADMIN})

ENDPOINTS: dict[str, frozenset[Scope]] = {
    # No secrets: the probes, the page and what it is drawn with, the description of the API, and logging in and out.
    "GET /livez": OPEN,
    "GET /readyz": OPEN,
    "GET /": OPEN,
    "GET /openapi.json": OPEN,
    "GET /v1/session": OPEN,
    "POST /v1/session": OPEN,
    "DELETE /v1/session": OPEN,
    "POST /v1/summaries": INGEST,
    "POST /v1/summaries/batch": INGEST,
    "PUT /v1/jobs/{job}": INGEST | CONTROL,
    "GET /metrics": READ,
    "GET /v1/stream": READ,
    "GET /v1/jobs": READ,
    "GET /v1/jobs/{job}": READ,
    "GET /v1/jobs/{job}/attempts": READ,
    "GET /v1/jobs/{job}/health": READ,
    "GET /v1/jobs/{job}/settings": READ,
    "GET /v1/jobs/{job}/signals": READ,
    "GET /v1/jobs/{job}/stretches": READ,
    "GET /v1/jobs/{job}/baselines": READ,
    "GET /v1/jobs/{job}/incidents": READ,
    "GET /v1/jobs/{job}/silences": READ,
    "GET /v1/jobs/{job}/events": READ,
    "GET /v1/jobs/{job}/events.jsonl": READ,
    "GET /v1/jobs/{job}/controls": READ,
    "GET /v1/jobs/{job}/proposals": READ,
    "GET /v1/jobs/{job}/mode": READ,
    "POST /v1/jobs/{job}/archive": CONTROL,
    "POST /v1/jobs/{job}/unarchive": CONTROL,
    "POST /v1/jobs/{job}/incidents/{detector}/ack": CONTROL,
    "PUT /v1/jobs/{job}/silences/{detector}": CONTROL,
    "DELETE /v1/jobs/{job}/silences/{detector}": CONTROL,
    "PATCH /v1/jobs/{job}/controls": CONTROL,
    "POST /v1/jobs/{job}/proposals/{number}/approve": CONTROL,
    "POST /v1/jobs/{job}/proposals/{number}/reject": CONTROL,
    "PUT /v1/jobs/{job}/mode": CONTROL,
    "POST /v1/jobs/{job}/kill": CONTROL,
    "POST /v1/jobs/{job}/replay": CONTROL,
    "GET /v1/tokens": ADMIN,
    "POST /v1/tokens": ADMIN,
    "DELETE /v1/tokens/{token}": ADMIN,
    "POST /v1/tokens/{token}/rotate": ADMIN,
    "GET /v1/webhooks": ADMIN,
    "POST /v1/webhooks": ADMIN,
    "GET /v1/webhooks/{id}": ADMIN,
    "PATCH /v1/webhooks/{id}": ADMIN,
    "DELETE /v1/webhooks/{id}": ADMIN,
    "POST /v1/webhooks/{id}/test": ADMIN,
    "POST /v1/webhooks/{id}/rotate": ADMIN,
    "GET /v1/webhooks/{id}/deliveries": ADMIN,
    "POST /v1/deliveries/{id}/retry": ADMIN,
    "GET /v1/audit": ADMIN,
    "GET /v1/audit.jsonl": ADMIN,
}
"""By method and path, the scopes of which any one suffices. What is not in here is for admins, and a test misses it."""
STATIC = "/static/"
"""What the page is drawn with: as open as the page."""


class Table:
    """Finds what the endpoint of a request asks for."""

    def __init__(self, endpoints: Mapping[str, frozenset[Scope]] = ENDPOINTS) -> None:
        self._exact = endpoints
        self._templates: dict[tuple[str, int], list[tuple[list[str], frozenset[Scope]]]] = {}
        for endpoint, scopes in endpoints.items():
            method, path = endpoint.split(" ")
            parts = path.split("/")
            self._templates.setdefault((method, len(parts)), []).append((parts, scopes))

    def needed(self, method: str, path: str) -> frozenset[Scope]:
        """Scopes of which any one suffices; none for what is open to all."""
        if method == "HEAD":
            method = "GET"
        exact = self._exact.get(f"{method} {path}")
        if exact is not None:
            return exact
        if method == "GET" and path.startswith(STATIC):
            return OPEN
        parts = path.split("/")
        for template, scopes in self._templates.get((method, len(parts)), ()):
            if all(want == part or (part and want.startswith("{")) for want, part in zip(template, parts, strict=True)):
                return scopes
        return ADMIN


def names(scopes: Iterable[Scope]) -> str:
    """The scopes as a sentence tells them."""
    return " or ".join(sorted(scope.value for scope in scopes))
