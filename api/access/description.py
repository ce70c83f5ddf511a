"""What the description of the API says of access: how a token is shown, what each endpoint asks for, how it refuses."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from trimtab.api.access.scopes import OPEN, Table, names
from trimtab.api.access.sessions import COOKIE

SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer ttb_...`"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "What `POST /v1/session` sets; changes also need the header `X-CSRF-Token`.",
    },
}
REFUSALS = {
    HTTPStatus.UNAUTHORIZED: "No token that is valid.",
    HTTPStatus.FORBIDDEN: "The token may not do this, or a page of another origin asks.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too often; `Retry-After` says when to come again.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The database does not answer; send it again later.",
}
_PROBLEMS = {"application/json": {"schema": {"$ref": "#/components/schemas/Problems"}}}


def describe(schema: dict[str, Any]) -> None:
    """Add it to the description, to each operation that needs a token."""
    table = Table()
    schema["components"]["securitySchemes"] = SCHEMES
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            needed = table.needed(method.upper(), path)
            if needed == OPEN:
                continue
            operation["security"] = [{"token": []}, {"session": []}]
            scope = f"Needs the scope {names(needed)}."
            operation["description"] = "\n\n".join(filter(None, (operation.get("description"), scope)))
            for status, told in REFUSALS.items():
                operation["responses"].setdefault(str(status.value), {"description": told, "content": _PROBLEMS})
