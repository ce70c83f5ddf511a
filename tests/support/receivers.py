"""Receivers of webhooks on loopback: real servers that answer as badly as they are told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Answer = Callable[["Handler"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Handler(BaseHTTPRequestHandler):
    """Notes the request, then answers as the next of the receiver's answers says."""

    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.received.append(Received(path=self.path, headers=headers, body=body))
        answer = self.server.next_answer()
        with suppress(ConnectionError):
            answer(self)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


class Receiver(ThreadingHTTPServer):
    """Listens on a free port while it is entered. Answers are used up one after another, then it says 200."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *answers: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[Received] = []
        self.answers = list(answers)
        self.default: Answer = reply(200, b"ok")
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def next_answer(self) -> Answer:
        with self._lock:
            return self.answers.pop(0) if self.answers else self.default

    def wait_for(self, number: int) -> None:
        """Wait until so many requests have come."""
        deadline = time.monotonic() + 30
        while len(self.received) < number:
            assert time.monotonic() < deadline, f"{len(self.received)} requests came, not {number}"
            time.sleep(0.01)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


def reply(status: int, body: bytes = b"", **headers: str) -> Answer:
    """An ordinary answer; underscores in the names of headers are dashes."""

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        handler.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def held(until: threading.Event) -> Answer:
    """No answer until the event is set."""

    def answer(handler: Handler) -> None:
        until.wait(20)
        reply(200)(handler)

    return answer


def dribbled(until: threading.Event) -> Answer:
    """The head of an answer, one byte every few milliseconds: never silent, never done."""

    def answer(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-long: ")
        while not until.wait(0.005):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    return answer


def huge(handler: Handler) -> None:
    """Ten megabytes."""
    handler.send_response(200)
    handler.send_header("content-length", str(10_000_000))
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b"x" * 100_000)
