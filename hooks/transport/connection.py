"""One kept-alive connection to an agent: requests, and what came of a summary that was posted.

Trainers, the command line and scripts all go through it (`trimtab.api.client` adds types), so there is one place that
knows addresses, tokens, and connections that were closed while idle. It takes no proxy from the environment: an agent
is near, and a summary must not go out of the house by accident.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import selectors
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from functools import partial
from typing import BinaryIO, TypeVar
from urllib.parse import urlsplit

from trimtab.hooks.records import Command
from trimtab.hooks.transport.backoff import retry_after
from trimtab.hooks.transport.base import TokenError, UrlError
from trimtab.hooks.wire import decode_value

PATH = "/v1/summaries"
TOKEN_VARIABLE = "TRIMTAB_TOKEN"
"""Environment variable of the bearer token that is sent where none is given."""
REPLY_BYTES = 1 << 20
"""Most of a reply that is read, unless said otherwise."""
AWAY = (429, 502, 503, 504)
"""Statuses that say nothing of the summary: the agent is busy, or nobody is behind the proxy."""
BARRED = (401, 403)
"""Statuses that say nothing of the summary either: the token is missing, not valid, or another job's."""
KINDS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}

Got = TypeVar("Got")
_log = logging.getLogger("trimtab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an agent answered to one request."""

    status: int
    headers: Message
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one POST; neither delivered nor rejected where nobody could be reached who decides."""

    delivered: bool = False
    rejected: str = ""
    """Why the agent will never take it."""
    stumbled: str = ""
    """How the agent itself failed over it: perhaps over this summary alone."""
    barred: str = ""
    """Why the agent does not let this process in; it may once somebody has seen to its token."""
    asked: float | None = None
    """Seconds that the agent asked to be left alone for."""
    command: Command | None = None


class Connection:
    """A connection to the agent at `url`, made when it is needed; for one thread at a time.

    Raises:
        UrlError: the URL has no host, its port is no port, or it is not HTTP.
        TokenError: the token cannot stand in a header.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 10.0) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise UrlError(f"url: {url!r} is no address ({error}); write it like http://127.0.0.1:8787") from error
        if parts.scheme not in KINDS or not host:
            raise UrlError(f"url: {url!r} has no host; write it like http://127.0.0.1:8787")
        self.url = url
        self._connect = partial(KINDS[parts.scheme], host, port)
        self._timeout = timeout
        self._connection = self._connect(timeout=timeout)
        self._prefix = parts.path.rstrip("/")
        self._headers = {"User-Agent": "trimtab"}
        if token := _checked(token):
            self._headers["Authorization"] = f"Bearer {token}"
        self._said_unreadable = False

    @property
    def has_token(self) -> bool:
        """Whether a token goes out with every request."""
        return "Authorization" in self._headers

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        limit: int = REPLY_BYTES,
        timeout: float | None = None,
    ) -> Reply:
        """One request and its reply, of which at most `limit` bytes are read; `timeout` is this one's own.

        A connection that the agent had closed while idle gets a second chance. A request that must not be carried out
        twice (not `repeatable`) is sent once, and on no connection that is known to be closed.

        Raises:
            OSError, http.client.HTTPException: nobody answers, or what answers is no HTTP server.
        """
        sent = {**self._headers, **(headers or {})}
        self._be_patient(self._timeout if timeout is None else timeout)
        if repeatable:
            return self._with_second_chance(lambda: self._exchange(method, path, body, sent, limit))
        if self._was_closed():
            self.hang_up()
        try:
            return self._exchange(method, path, body, sent, limit)
        except BaseException:
            self.hang_up()
            raise

    @contextmanager
    def stream(
        self, path: str, *, headers: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> Iterator[tuple[Reply, BinaryIO]]:
        """GET what does not end, on a connection of its own: status and headers, and the body to read as it comes.

        Raises:
            OSError, http.client.HTTPException: nobody answers, or nothing comes for `timeout` seconds.
        """
        connection = self._connect(timeout=timeout)
        try:
            connection.request("GET", self._prefix + path, headers={**self._headers, **(headers or {})})
            response = connection.getresponse()
            yield Reply(status=response.status, headers=response.headers, body=b""), response
        finally:
            connection.close()

    def post(self, payload: bytes) -> Answer:
        """Report one summary, once; a connection that the agent had closed while idle gets a second chance. Never
        raises."""
        try:
            return self._with_second_chance(lambda: self._answer(payload))
        except Exception:  # whatever it says: no reply of an agent ends the thread
            return Answer()

    def hang_up(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    def _with_second_chance(self, attempt: Callable[[], Got]) -> Got:
        chances = 1 if self._connection.sock is None else 2
        while True:
            try:
                return attempt()
            except BaseException as error:
                self.hang_up()
                chances -= 1
                if not chances or isinstance(error, TimeoutError) or not isinstance(error, Exception):
                    raise

    def _be_patient(self, timeout: float) -> None:
        self._connection.timeout = timeout
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)

    def _was_closed(self) -> bool:
        """Whether there is something to read before anything was asked: the end of the connection."""
        if self._connection.sock is None:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection.sock, selectors.EVENT_READ)
            return bool(selector.select(timeout=0))

    def _exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], limit: int) -> Reply:
        self._connection.request(method, self._prefix + path, body=body, headers=headers)
        response = self._connection.getresponse()
        reply = Reply(status=response.status, headers=response.headers, body=response.read(limit))
        if not response.isclosed():
            self.hang_up()
        return reply

    def _answer(self, payload: bytes) -> Answer:
        headers = {**self._headers, "Content-Type": "application/json"}
        reply = self._exchange("POST", PATH, payload, headers, REPLY_BYTES)
        told = f"{reply.status} {reply.body[:500].decode(errors='replace')}"
        if reply.status in BARRED:
            self.hang_up()
            return Answer(barred=told)
        if reply.status == 429 or reply.status >= 500:
            self.hang_up()
            return Answer(
                asked=retry_after(reply.headers.get("Retry-After"), time.time()),
                stumbled="" if reply.status in AWAY else told,
            )
        if not 200 <= reply.status < 300:
            self.hang_up()
            return Answer(rejected=told)
        found = json.loads(reply.body)
        if not isinstance(found, dict) or "command" not in found:
            raise ValueError("not an agent's reply")
        return Answer(delivered=True, command=self._command(found["command"]))

    def _command(self, value: object) -> Command | None:
        """The command in a reply. One that cannot be read is left alone: the summary was delivered all the same."""
        try:
            return None if value is None else decode_value(Command, value)
        except Exception as error:
            if not self._said_unreadable:
                self._said_unreadable = True
                _log.warning("trimtab: a command that cannot be read: %.500s", error)
            return None


def _checked(token: str | None) -> str:
    """The token to send, that of the environment where none is given; empty for none. Raises `TokenError`."""
    told = (os.environ.get(TOKEN_VARIABLE, "") if token is None else token).strip()  # files and variables end in lines
    if not (told.isascii() and told.isprintable()) or " " in told:
        raise TokenError(f"token: what is given, or in {TOKEN_VARIABLE}, is no token; give one like ttb_..., whole")
    return told
