"""The description of the API, beyond what the framework writes by itself: names, tags, and every error's one shape."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from fastapi.routing import APIRoute

from trimtab.hooks.wire import NON_FINITE

TAGS = {
    "summaries": "What trainers report, and the commands that ride on the answers.",
    "jobs": "Who reports here, under which settings, and what other settings would have made of it.",
    "health": "Is it well?",
    "signals": "What was measured over the steps of a run, what is usual, and where it would alarm.",
    "incidents": "Conditions that last: who looks after them, and what nobody wants to be told of.",
    "events": "What happened, in order and live.",
    "controls": "What is wanted of a trainer, and what is in effect.",
    "proposals": "Changes that wait for a person, or stand as advice.",
    "mode": "How far the agent may go with a job.",
    "kill switch": "Every override lifted, and the agent's hands off.",
    "webhooks": "Who is told of incidents, and what became of it.",
    "access": "Tokens, sessions, and the audit log of everything that was done.",
    "operations": "For the machines that look after this one.",
}
"""By name, in the order in which a reader needs them."""
ERRORS = {
    HTTPStatus.NOT_FOUND: "There is no such job.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large; send less at a time.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is in an encoding that is not taken here.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "A field is malformed; the errors name it.",
}
"""What is said of a status, where the route says nothing else."""
EXAMPLES = {
    HTTPStatus.UNAUTHORIZED: ("Authorization", "a token is needed; send the header `Authorization: Bearer ttb_...`"),
    HTTPStatus.FORBIDDEN: ("Authorization", "this token has the scope read, and this takes control"),
    HTTPStatus.NOT_FOUND: ("job", "there is no job 'cliff'; a job appears with its first summary"),
    HTTPStatus.CONFLICT: ("base_generation", "the controls are at generation 4; look at them again"),
    HTTPStatus.GONE: ("number", "proposal 3 was withdrawn at step 120 of attempt 1: its incident ended"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ("body", "the body is larger than 1000000 bytes; send less at a time"),
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: ("Content-Encoding", "is none of gzip, zstd and identity"),
    HTTPStatus.UNPROCESSABLE_ENTITY: ("reason", "Field required"),
    HTTPStatus.TOO_MANY_REQUESTS: ("", "too often; come again in 2 s"),
    HTTPStatus.SERVICE_UNAVAILABLE: ("", "the database does not answer; send it again later"),
}
"""Field and message of one error of each status."""
MEASURED = ("ReportedSummary", "Verdict", "Incident", "SignalView", "DetectorView")
"""Schemas whose numbers, and those of what is in them, need not be finite."""
NOT_FINITE = {
    "type": "string",
    "enum": list(NON_FINITE),
    "title": "NotFinite",
    "description": "A number that JSON has no way to write.",
}
_REFERENCE = "#/components/schemas/"
_PROBLEMS = {"$ref": f"{_REFERENCE}Problems"}


def operation_id(route: APIRoute) -> str:
    """What the operation is called in clients that are generated: the name of its function."""
    return route.name


def complete(schema: dict[str, Any]) -> None:
    """Add what every operation has in common to an OpenAPI schema."""
    used = {tag for _, operation in _operations(schema) for tag in operation["tags"]}
    schema["tags"] = [{"name": name, "description": told} for name, told in TAGS.items() if name in used]
    for path, operation in _operations(schema):
        responses = operation["responses"]
        if "{job}" in path:
            _say(responses, HTTPStatus.NOT_FOUND)
        if "requestBody" in operation:
            _say(responses, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            _say(responses, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if "422" in responses or "requestBody" in operation or operation.get("parameters"):
            _say(responses, HTTPStatus.UNPROCESSABLE_ENTITY)
        for status, response in responses.items():
            if status[0] in "45":
                response["content"] = {"application/json": _content(HTTPStatus(int(status)))}
        operation["responses"] = dict(sorted(responses.items()))
    schemas = schema["components"]["schemas"]
    for name in _within(schemas, MEASURED):
        schemas[name] = _measured(schemas[name])
    schemas["NotFinite"] = NOT_FINITE
    for unused in ("HTTPValidationError", "ValidationError"):  # the framework's own shape, which nothing answers with
        schemas.pop(unused, None)


def _operations(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, operation) for path, methods in schema["paths"].items() for operation in methods.values()]


def _within(schemas: dict[str, Any], names: Iterable[str]) -> set[str]:
    """These schemas, and those that they refer to."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _references(schemas[name])
    return found


def _references(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [part["$ref"].removeprefix(_REFERENCE)] if isinstance(part.get("$ref"), str) else []
        return own + [name for inner in part.values() for name in _references(inner)]
    return [name for inner in part for name in _references(inner)] if isinstance(part, list) else []


def _measured(part: Any) -> Any:
    """The schema with the names of numbers that are not finite beside each number."""
    if isinstance(part, list):
        return [_measured(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") != "number":
        return {name: _measured(inner) for name, inner in part.items()}
    said = {name: part[name] for name in ("title", "description", "default") if name in part}
    number = {name: value for name, value in part.items() if name not in said}
    return {"anyOf": [number, {"$ref": f"{_REFERENCE}NotFinite"}], **said}


def _say(responses: dict[str, Any], status: HTTPStatus) -> None:
    known = responses.setdefault(str(status.value), {})
    if known.get("description") in (None, "Validation Error"):
        known["description"] = ERRORS[status]


def _content(status: HTTPStatus) -> dict[str, Any]:
    field, message = EXAMPLES[status]
    return {"schema": _PROBLEMS, "example": {"errors": [{"field": field, "value": None, "message": message}]}}
