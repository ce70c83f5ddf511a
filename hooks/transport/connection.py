"""One kept-alive connection to an agent: one POST a summary, and what came of it."""

from __future__ import annotations

import http.client
import json
import logging
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from trimtab.hooks.records import Command
from trimtab.hooks.transport.backoff import retry_after
from trimtab.hooks.transport.base import UrlError
from trimtab.hooks.wire import decode_value

PATH = "/v1/summaries"
REPLY_BYTES = 1 << 20
AWAY = (429, 502, 503, 504)
"""Statuses that say nothing of the summary: the agent is busy, or nobody is behind the proxy."""
KINDS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}

_log = logging.getLogger("trimtab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one POST; neither delivered nor rejected where nobody could be reached who decides."""

    delivered: bool = False
    rejected: str = ""
    """Why the agent will never take it."""
    stumbled: str = ""
    """How the agent itself failed over it: perhaps over this summary alone."""
    asked: float | None = None
    """Seconds that the agent asked to be left alone for."""
    command: Command | None = None


class Connection:
    """A connection to the agent at `url`, made when it is needed.

    Raises:
        UrlError: the URL has no host, its port is no port, or it is not HTTP.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 10.0) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise UrlError(f"url: {url!r} cannot be read ({error})") from error
        if parts.scheme not in KINDS or not host:
            raise UrlError(f"url: {url!r} has no host; write it like http://127.0.0.1:8787")
        self.url = url
        self._connection = KINDS[parts.scheme](host, port, timeout=timeout)
        self._path = parts.path.rstrip("/") + PATH
        self._headers = {"Content-Type": "application/json", "User-Agent": "trimtab"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._said_unreadable = False

    def post(self, payload: bytes) -> Answer:
        """Try once; a connection that the agent had closed while idle gets a second chance. Never raises."""
        chances = 1 if self._connection.sock is None else 2
        while chances:
            try:
                return self._exchange(payload)
            except Exception as error:  # whatever it says: no reply of an agent ends the thread
                self.hang_up()
                chances = 0 if isinstance(error, TimeoutError) else chances - 1
        return Answer()

    def hang_up(self) -> None:
        """Close the connection; the next POST opens another."""
        self._connection.close()

    def _exchange(self, payload: bytes) -> Answer:
        self._connection.request("POST", self._path, body=payload, headers=self._headers)
        response = self._connection.getresponse()
        body = response.read(REPLY_BYTES)
        if response.status == 429 or response.status >= 500:
            self.hang_up()
            told = f"{response.status} {body[:500].decode(errors='replace')}"
            return Answer(
                asked=retry_after(response.headers.get("Retry-After"), time.time()),
                stumbled="" if response.status in AWAY else told,
            )
        if not 200 <= response.status < 300:
            self.hang_up()
            return Answer(rejected=f"{response.status} {body[:500].decode(errors='replace')}")
        if not response.isclosed():
            self.hang_up()
        reply = json.loads(body)
        if not isinstance(reply, dict) or "command" not in reply:
            raise ValueError("not an agent's reply")
        return Answer(delivered=True, command=self._command(reply["command"]))

    def _command(self, value: object) -> Command | None:
        """The command in a reply. One that cannot be read is left alone: the summary was delivered all the same."""
        try:
            return None if value is None else decode_value(Command, value)
        except Exception as error:
            if not self._said_unreadable:
                self._said_unreadable = True
                _log.warning("trimtab: a command that cannot be read: %.500s", error)
            return None
