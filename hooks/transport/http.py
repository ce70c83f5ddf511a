"""To an agent over HTTP: one POST a summary; the reply carries the newest command.

    2xx                      delivered
    429, 5xx, no connection  tried again after a pause (doubling, jittered, Retry-After honoured); meanwhile summaries
                             go to the spool, and are replayed oldest first once the agent is back
    anything else            the agent will never take this summary: kept in the spool's folder `rejected`, counted

Delivery is at least once and in order; the agent ignores what it has already seen.
"""

from __future__ import annotations

import http.client
import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trimtab.hooks.layout import Report
from trimtab.hooks.records import Command
from trimtab.hooks.transport.background import CAPACITY, Background
from trimtab.hooks.transport.backoff import Backoff, retry_after
from trimtab.hooks.transport.spool import Spool
from trimtab.hooks.wire import decode_value, encode

PATH = "/v1/summaries"
REPLY_BYTES = 1 << 20

_log = logging.getLogger("trimtab")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came of one POST."""

    delivered: bool = False
    rejected: str = ""
    """Why the agent will never take it."""
    asked: float | None = None
    """Seconds that the agent asked to be left alone for."""
    command: Command | None = None


class HttpTransport(Background):
    """Delivers to the agent at `url` from a thread of its own.

    Raises:
        ValueError: the URL has no host.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        spool: Path | None = None,
        backoff: Backoff | None = None,
        timeout: float = 10.0,
        capacity: int = CAPACITY,
    ) -> None:
        super().__init__(capacity)
        self._agent = _Agent(url, token, timeout)
        self._backoff = backoff or Backoff()
        self._spool = Spool(spool) if spool else None
        self._rejects = Spool(spool / "rejected") if spool else None
        self.rejected = 0
        """Summaries that the agent refused for good."""
        self._command: Command | None = None
        self._failures = 0
        self._not_before = 0.0

    @property
    def dropped(self) -> int:
        """Summaries lost so far."""
        return self._lost + sum(spool.dropped for spool in (self._spool, self._rejects) if spool)

    def command(self) -> Command | None:
        """The newest command received."""
        return self._command

    def close(self, timeout: float) -> None:
        """Deliver for at most `timeout` seconds, then spool what is left."""
        super().close(timeout)
        with self._changed:
            self._spool_queue()
            self._lost += len(self._queue)
            self._queue.clear()
            for spool in (self._spool, self._rejects):
                if spool:
                    spool.close()

    def _work(self) -> None:
        while self._wait_for_work():
            with self._changed:
                spooled = self._spool.peek() if self._spool else None
                report = self._queue[0] if spooled is None and self._queue else None
            payload = spooled if report is None else encode(report.whole())
            if payload is None:
                continue
            answer = self._agent.post(payload)
            with self._changed:
                self._settle(answer, payload, report)
        self._agent.hang_up()

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to deliver and the agent may be tried; False once closed and done."""
        with self._changed:
            while True:
                now = time.monotonic()
                waiting = bool(self._queue) or (self._spool is not None and self._spool.peek() is not None)
                if self._close_at is not None:
                    return waiting and now < self._close_at and not self._failures
                if waiting and now >= self._not_before:
                    return True
                if self._failures:
                    self._spool_queue()
                self._changed.wait(self._not_before - now if waiting else None)

    def _settle(self, answer: _Answer, payload: bytes, report: Report | None) -> None:
        self._command = answer.command or self._command
        if not answer.delivered and not answer.rejected:
            self._failures += 1
            if self._failures == 1:
                _log.warning("trimtab: no answer from %s; summaries wait until it is back", self._agent.url)
            self._not_before = time.monotonic() + self._backoff.wait(self._failures, answer.asked)
            return
        self._failures = 0
        if answer.rejected:
            self.rejected += 1
            kept = self._rejects is not None and self._rejects.append(payload)
            self._lost += not kept
            if self.rejected == 1:
                _log.warning("trimtab: %s refused a summary: %s", self._agent.url, answer.rejected)
        if report is not None:
            self._done_with(report)
        elif self._spool is not None:
            self._spool.pop()

    def _spool_queue(self) -> None:
        """Move the queue to disk, in order; what the disk does not take stays in memory."""
        while self._spool is not None and self._queue and self._spool.append(encode(self._queue[0].whole())):
            self._queue.popleft()


class _Agent:
    """One kept-alive connection."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        parts = urlsplit(url)
        if not parts.hostname:
            raise ValueError(f"url: {url!r} has no host; write it like http://127.0.0.1:8787")
        self.url = url
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=timeout)
        self._path = parts.path.rstrip("/") + PATH
        self._headers = {"Content-Type": "application/json", "User-Agent": "trimtab"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def post(self, payload: bytes) -> _Answer:
        """Try once; a connection that the agent had closed while idle gets a second chance. Never raises."""
        chances = 1 if self._connection.sock is None else 2
        while chances:
            try:
                return self._exchange(payload)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.hang_up()
                chances = 0 if isinstance(error, TimeoutError) else chances - 1
        return _Answer()

    def hang_up(self) -> None:
        """Close the connection; the next POST opens another."""
        self._connection.close()

    def _exchange(self, payload: bytes) -> _Answer:
        self._connection.request("POST", self._path, body=payload, headers=self._headers)
        response = self._connection.getresponse()
        body = response.read(REPLY_BYTES)
        if response.status == 429 or response.status >= 500:
            self.hang_up()
            return _Answer(asked=retry_after(response.headers.get("Retry-After"), time.time()))
        if not 200 <= response.status < 300:
            self.hang_up()
            return _Answer(rejected=f"{response.status} {body[:500].decode(errors='replace')}")
        if not response.isclosed():
            self.hang_up()
        reply = json.loads(body)
        if not isinstance(reply, dict) or "command" not in reply:
            raise ValueError("not an agent's reply")
        return _Answer(delivered=True, command=_command(reply["command"]))


def _command(value: object) -> Command | None:
    """The command in a reply. One that cannot be read is left alone: the summary was delivered all the same."""
    try:
        return None if value is None else decode_value(Command, value)
    except ValueError as error:
        _log.warning("trimtab: a command that cannot be read: %s", error)
        return None
