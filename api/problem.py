"""The one shape of every error: `{"errors": [{"field", "value", "message"}]}`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.routing import Match

from trimtab.agent.operator import OperatorError
from trimtab.api.access.redaction import redacted
from trimtab.api.portable import MAX_INTEGER, shown_text
from trimtab.api.restore import UnreadableJobError
from trimtab.hooks.controls import ControlError
from trimtab.hooks.records import RecordError
from trimtab.storage.queries import UnknownJobError
from trimtab.storage.store import ConfigFixedError, ConflictError

MAX_SHOWN = 200
MAX_PROBLEMS = 20
"""Of one request that are told; how many more there are is told beside them."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_FIELD_PREFIX = re.compile(r"(?:Value error, )?([\w.]+(?:, [\w.]+)*): ")
_log = logging.getLogger("trimtab.api")


def _encodable(value: Any) -> Any:
    return redacted(shown_text(value)) if isinstance(value, str) else value


Told = Annotated[str, BeforeValidator(_encodable)]
"""Text that can be sent, whatever the request held: without secrets, and without what is no text."""


class Problem(BaseModel):
    """One thing that is wrong with a request."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    field: Told = Field(description="Path of the offending field, dots between the parts.", examples=["scalars.loss"])
    value: Annotated[Any, BeforeValidator(_encodable)] = Field(
        description="What stood there, shortened; null where it was missing.", examples=["many"]
    )
    message: Told = Field(description="What is wrong and what to do.", examples=["should be a valid number"])


class Problems(BaseModel):
    """Everything that is wrong with a request."""

    errors: list[Problem]


class ApiError(Exception):
    """A refusal with a status and its problems."""

    def __init__(
        self,
        status: HTTPStatus,
        field: str,
        message: str,
        value: Any = None,
        more: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problems = (Problem(field=field, value=shown(value), message=message), *more)
        self.headers = dict(headers or {})


ERRORS: dict[int | str, dict[str, Any]] = {
    HTTPStatus.NOT_FOUND: {"model": Problems, "description": "There is no such job."},
    HTTPStatus.UNPROCESSABLE_ENTITY: {"model": Problems, "description": "A field is malformed; the errors name it."},
}
"""For the `responses` of a route."""
MALFORMED: dict[int | str, dict[str, Any]] = {HTTPStatus.UNPROCESSABLE_ENTITY: ERRORS[HTTPStatus.UNPROCESSABLE_ENTITY]}
"""For a route that is not about a job."""
CONFLICT: dict[int | str, dict[str, Any]] = {
    HTTPStatus.CONFLICT: {"model": Problems, "description": "The request contradicts what is stored."}
}


def shown(value: Any) -> Any:
    """`value` as it may stand in an error: plain JSON without NaN, and short."""
    if value is None or (isinstance(value, int) and abs(value) <= MAX_INTEGER):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def named(message: str, location: Sequence[str | int] = (), value: Any = None) -> Problem:
    """A problem out of one of our own messages, which begin with the name of their field, inside `location`."""
    parts = [str(part) for part in location]
    if match := _FIELD_PREFIX.match(message):
        inner = match.group(1).split(".")
        shared = next((n for n in range(len(inner), 0, -1) if parts[-n:] == inner[:n]), 0)  # named from further out
        inner = inner[shared:]
        parts += inner
        message = message[match.end() :]
        for part in inner:
            value = value.get(part) if isinstance(value, dict) else None
    return Problem(field=".".join(parts), value=shown(value), message=message)


def answer(status: int, problems: Sequence[Problem], headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The reply that carries the problems."""
    return JSONResponse(
        Problems(errors=list(problems)).model_dump(mode="json"), status_code=status, headers=dict(headers or {})
    )


def unanswered(error: Exception) -> Problem:
    """The database does not answer, or no connection was free for long: what it says of that, never the statement."""
    what = str(error.orig if isinstance(error, DBAPIError) else error).partition("\n")[0]  # below may be what was asked
    return Problem(field="", value=None, message=f"the database does not answer ({what}); send it again later")


def problems_of(error: RequestValidationError) -> list[Problem]:
    """What is wrong with a request that could not be read."""
    return [_from_validation(detail) for detail in shortened(error.errors())]


def shortened(details: Sequence[Any]) -> Sequence[Any]:
    """The first of what a validation found, and one more that says how many others there are.

    Doing so again changes nothing.
    """
    if len(details) <= MAX_PROBLEMS + 1:
        return details
    message = f"{len(details) - MAX_PROBLEMS} more are wrong; correct these first"
    return [*details[:MAX_PROBLEMS], {"type": "more", "loc": ("",), "msg": message, "input": None}]


def install(app: FastAPI, on_invalid: Callable[[Request], None]) -> None:
    """Make every refusal of the app answer in the one shape; `on_invalid` hears of requests that could not be read."""

    def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        on_invalid(request)
        kind = request.headers.get("content-type", "")
        if not is_json(kind) and any(detail["loc"] == ("body",) for detail in error.errors()):
            message = "the body was not read as JSON; send the header content-type: application/json"
            return answer(HTTPStatus.UNPROCESSABLE_ENTITY, [Problem(field="Content-Type", value=kind, message=message)])
        return answer(HTTPStatus.UNPROCESSABLE_ENTITY, problems_of(error))

    def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ApiError)
        return answer(error.status, error.problems, error.headers)

    def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if error.status_code == HTTPStatus.BAD_REQUEST:  # the framework's word for a body that is no text at all
            on_invalid(request)
            problem = Problem(field="body", value=None, message=f"not JSON: {_unread(error.__cause__)}")
            return answer(HTTPStatus.UNPROCESSABLE_ENTITY, [problem])
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_methods(request))  # the framework names those of one route alone
        return answer(error.status_code, [Problem(field="", value=None, message=str(error.detail))], headers)

    def unknown_job(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, UnknownJobError)
        return answer(HTTPStatus.NOT_FOUND, [Problem(field="job", value=error.job, message=str(error))])

    def conflict(_: Request, error: Exception) -> JSONResponse:
        field = "config" if isinstance(error, ConfigFixedError) else "attempt, step, rank"
        return answer(HTTPStatus.CONFLICT, [Problem(field=field, value=None, message=str(error))])

    def own_rule(_: Request, error: Exception) -> JSONResponse:
        return answer(HTTPStatus.UNPROCESSABLE_ENTITY, [named(str(error))])

    def unfit(_: Request, error: Exception) -> JSONResponse:
        return answer(HTTPStatus.CONFLICT, [named(str(error))])

    def database(_: Request, error: Exception) -> JSONResponse:
        _log.error("the database refused: %s", error.orig if isinstance(error, DBAPIError) else error)
        return answer(HTTPStatus.SERVICE_UNAVAILABLE, [unanswered(error)])

    def unreadable(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, UnreadableJobError)
        _log.error("%s", error)
        problem = Problem(field="job", value=error.job, message=str(error))
        return answer(HTTPStatus.SERVICE_UNAVAILABLE, [problem])  # so that the trainer keeps what it has to say

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(ApiError, refused)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(UnknownJobError, unknown_job)
    app.add_exception_handler(ConflictError, conflict)
    app.add_exception_handler(ConfigFixedError, conflict)
    app.add_exception_handler(ControlError, own_rule)
    app.add_exception_handler(RecordError, own_rule)
    app.add_exception_handler(OperatorError, unfit)
    app.add_exception_handler(DBAPIError, database)
    app.add_exception_handler(PoolTimeout, database)
    app.add_exception_handler(UnreadableJobError, unreadable)


def _methods(request: Request) -> list[str]:
    """What the path of a request takes."""
    return [
        method
        for method in METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in request.app.routes)
    ]


def is_json(content_type: str) -> bool:
    """Whether a header Content-Type says JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _unread(cause: BaseException | None) -> str:
    """Why a body could not even be parsed."""
    if isinstance(cause, UnicodeDecodeError):
        return "not even UTF-8 text"
    if isinstance(cause, RecursionError):
        return "nested more deeply than any record"
    if isinstance(cause, ValueError):
        return "an integer has more digits than any record needs"
    return "it could not be read"


def _from_validation(detail: Any) -> Problem:
    location: list[str | int] = list(detail["loc"])
    if detail["type"] == "json_invalid":
        reason = detail.get("ctx", {}).get("error", detail["msg"])
        at = f" at character {location[-1]}" if isinstance(location[-1], int) else ""
        return Problem(field="body", value=None, message=f"not JSON: {reason}{at}")
    if len(location) > 1 and location[0] in ("body", "query", "path"):
        location = location[1:]
    elif location == ["body"] and detail["type"] == "value_error":
        location = []
    if detail["type"] == "value_error":
        return named(detail["msg"], location, detail["input"])
    value = None if detail["type"] == "missing" else shown(detail["input"])
    message: str = detail["msg"]
    return Problem(field=".".join(map(str, location)), value=value, message=message.removeprefix("Input ").strip())
