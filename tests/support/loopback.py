"""An agent that is only a loopback HTTP server with a script of answers."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], Any]
OK: Reply = (200, {}, {"command": None})


class LoopbackAgent:
    """Takes POSTs; `answer(summary)` decides the reply. What got a 2xx is in `taken`, once, as a real agent has it."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.seen: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answer: Callable[[dict[str, Any]], Reply] = lambda _: OK
        self.holding = threading.Event()
        """Set while a request waits for `release`."""
        self.release = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        agent = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                summary = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                agent.seen.append(summary)
                agent.headers.append(dict(self.headers))
                agent.paths.append(self.path)
                status, headers, reply = agent.answer(summary)
                if 200 <= status < 300 and summary not in agent.taken:
                    agent.taken.append(summary)
                body = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def process_request(self, request: Any, client_address: Any) -> None:
                agent._connections.append(request)
                super().process_request(request, client_address)

            def handle_error(self, *_: object) -> None:
                pass

        self._connections: list[Any] = []
        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening and cut every connection, as a killed process does."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(2)
            self._server = None

    def hold(self, summary: dict[str, Any]) -> Reply:
        """An answer that does not come before `release`."""
        del summary
        self.holding.set()
        self.release.wait()
        return OK
