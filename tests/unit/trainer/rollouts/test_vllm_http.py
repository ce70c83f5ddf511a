"""Requests to servers: in turn, again after failures that may pass, and never after refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trimtab.trainer.rollouts import vllm_http
from trimtab.trainer.rollouts.sampler import SamplerError
from trimtab.trainer.rollouts.vllm_http import Servers
from trimtab.trainer.sampler_sections import ServerConfig

Start = Callable[[list[int]], tuple[str, list[str]]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a server that answers with each status in turn, then 200; its address, and what it was asked for."""
    monkeypatch.setattr(vllm_http, "FIRST_WAIT", 0.001)
    running: list[ThreadingHTTPServer] = []

    def started(statuses: list[int]) -> tuple[str, list[str]]:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                asked.append(self.path)
                status = statuses.pop(0) if statuses else 200
                body = json.dumps({"path": self.path} if status == 200 else {"error": "so it is"}).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", asked

    yield started
    for server in running:
        server.shutdown()
        server.server_close()


def servers(*urls: str, retries: int = 2) -> Servers:
    return Servers(ServerConfig(kind="server", urls=urls, retries=retries, timeout=5))


def test_a_failure_of_the_server_is_asked_again_and_then_told(start: Start) -> None:
    url, asked = start([500, 503])
    with closing(servers(url)) as client:
        assert client.ask(url, "/one") == {"path": "/one"}
    assert asked == ["/one"] * 3
    url, asked = start([500] * 3)
    with closing(servers(url)) as client, pytest.raises(SamplerError) as told:
        client.ask(url, "/one")
    assert asked == ["/one"] * 3
    assert str(told.value) == f'sampler.urls: {url}/one failed 3 times: HTTP 500: {{"error": "so it is"}}'


def test_a_refusal_is_not_asked_again_and_says_how_to_start_the_server(start: Start) -> None:
    url, asked = start([404])
    with closing(servers(url)) as client, pytest.raises(SamplerError, match="start it with python -m trimtab"):
        client.ask(url, "/weight_info")
    assert asked == ["/weight_info"]


def test_what_must_not_be_done_twice_is_asked_once(start: Start) -> None:
    url, asked = start([500])
    with closing(servers(url)) as client, pytest.raises(SamplerError, match="failed 1 times: HTTP 500"):
        client.ask(url, "/start_weight_update", again=False)
    assert asked == ["/start_weight_update"]


def test_addresses_take_turns(start: Start) -> None:
    first, second = start([])[0], start([])[0]
    with closing(servers(first, f"{second}/")) as client:
        assert [client.next() for _ in range(4)] == [first, second, first, second]


def test_nobody_there_is_told_with_the_address() -> None:
    url = "http://127.0.0.1:9"
    with closing(servers(url, retries=0)) as client, pytest.raises(SamplerError, match=f"{url}/health failed 1 times"):
        client.ask(url, "/health")
