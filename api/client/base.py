"""Asking the service: one request, a typed answer, or one kind of error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPException
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ValidationError

from trimtab.api.errors import UserError
from trimtab.api.problem import Problem, Problems
from trimtab.api.routes.paging import Page
from trimtab.api.server import DEFAULT_PORT
from trimtab.hooks.transport.base import TokenError, UrlError
from trimtab.hooks.transport.connection import Connection, Reply

DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"
TIMEOUT_S = 10.0
MOST_BYTES = 1 << 28
"""Of one answer."""
PAGE = 1000
"""Items asked for at a time where all pages are read."""
REPEATABLE = ("GET", "PUT")
"""Methods whose request may be sent again on another connection."""

Answer = TypeVar("Answer", bound=BaseModel)
Paged = TypeVar("Paged", bound=Page)


class ClientError(UserError):
    """The service cannot be reached, or refuses; the message says what to do."""

    def __init__(self, message: str, status: int | None = None, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the refusal; None when nothing answered."""
        self.problems = tuple(problems)


class Caller:
    """What every group of calls asks with."""

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None, *, timeout: float = TIMEOUT_S) -> None:
        """A client of the service at `url`; no connection is made yet.

        Args:
            url: where the service is.
            token: bearer token; that of the environment's `TRIMTAB_TOKEN` where it is None, and none where it is empty.
            timeout: seconds to wait for an answer.

        Raises:
            ClientError: `url` is none, or `token`.
        """
        self.url = url.rstrip("/")
        try:
            self._connection = Connection(self.url, token, timeout)
        except (UrlError, TokenError) as error:
            raise ClientError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._connection.hang_up()

    def _ask(
        self,
        kind: type[Answer],
        method: str,
        path: str,
        body: Mapping[str, Any] | str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        repeatable: bool | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send one request and read its answer; `body` is JSON text, or what becomes it.

        Raises:
            ClientError: nothing answers, the service refuses, or what answers is no trimtab service.
        """
        again = method in REPEATABLE if repeatable is None else repeatable
        reply = self._sent(method, path, body, params, repeatable=again, timeout=timeout)
        try:
            return kind.model_validate_json(reply.body)
        except ValidationError as error:
            raise self._stranger() from error

    def _pages(self, kind: type[Paged], path: str, params: Mapping[str, Any]) -> Iterator[Paged]:
        """Every page of a list, from the `cursor` among the parameters on; raises what `_ask` does."""
        asked: dict[str, Any] = {"limit": PAGE, **params}
        while True:
            page = self._ask(kind, "GET", path, params=asked)
            yield page
            if page.next is None:
                return
            asked["cursor"] = page.next

    def _sent(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | str | None,
        params: Mapping[str, Any] | None,
        *,
        repeatable: bool,
        timeout: float | None = None,
    ) -> Reply:
        content = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        headers = {} if content is None else {"Content-Type": "application/json"}
        try:
            reply = self._connection.request(
                method,
                path + query(params),
                content,
                headers=headers,
                repeatable=repeatable,
                limit=MOST_BYTES,
                timeout=timeout,
            )
        except (OSError, HTTPException) as error:
            raise self._away(error) from error
        if not 200 <= reply.status < 300:
            raise self._refusal(reply.status, reply.body)
        return reply

    def _lines(self, path: str, params: Mapping[str, Any] | None = None, **headers: str) -> Iterator[str]:
        """The lines of an answer as they come, without their ends; raises what `_ask` does."""
        try:
            with self._connection.stream(path + query(params), headers=headers) as (reply, body):
                if not 200 <= reply.status < 300:
                    raise self._refusal(reply.status, body.read(MOST_BYTES))
                for line in body:
                    yield line.decode().rstrip("\r\n")
        except (OSError, HTTPException) as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> ClientError:
        told = str(error) or type(error).__name__
        return ClientError(f"url: nothing answers at {self.url} ({told}); start it with `trimtab serve`")

    def _stranger(self) -> ClientError:
        return ClientError(f"url: what answers at {self.url} is not a trimtab service of this version")

    def _refusal(self, status: int, body: bytes) -> ClientError:
        try:
            problems = Problems.model_validate_json(body).errors
        except ValidationError:
            return self._stranger()
        if status == HTTPStatus.UNAUTHORIZED and not self._connection.has_token:
            return ClientError("token: one is needed; set TRIMTAB_TOKEN, or give --token", status, problems)
        told = "; ".join(f"{one.field}: {one.message}" if one.field else one.message for one in problems)
        return ClientError(told, status, problems)


def query(params: Mapping[str, Any] | None) -> str:
    """The query part of a URL, with its `?`; a value that is None is left out, a list is repeated.

    Raises:
        ClientError: a value is no text.
    """
    given = {name: _written(name, value) for name, value in (params or {}).items() if value is not None}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _written(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return [_text(name, one) for one in value] if isinstance(value, (list, tuple)) else _text(name, value)


def _text(name: str, value: object) -> str:
    """As it stands in a URL. Raises `ClientError` where it is no text, such as an argument in another encoding."""
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ClientError(f"{name}: {text!a} is no UTF-8 text; give it in that encoding") from error
    return text


def api_path(*parts: object) -> str:
    """A path of the API; every part is quoted. Raises `ClientError` where one is no text."""
    return "/".join(("/v1", *(quote(_text("name", part), safe="") for part in parts)))


def job_path(job: str, *rest: object) -> str:
    """The path of a job, or of what lies below it."""
    return api_path("jobs", job, *rest)
