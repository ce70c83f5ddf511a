"""The end of a real server under load: what was acknowledged is stored, and the process ends in order."""

import json
import signal
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_runs import Plant
from api_runs import serving

from trimtab.hooks.wire import encode
from trimtab.storage.database import Database
from trimtab.storage.store import Store
from trimtab.storage.values import Past

PATIENCE_S = 60.0
"""After which a server that has not ended is held to hang."""
TRAINERS = 4


class Load:
    """Trainers that report as fast as they can, each over a connection of its own, until the server is gone."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self.acknowledged: set[tuple[str, int]] = set()
        self.refused: list[int] = []
        self.reached = threading.Event()

    def _trainer(self, job: str) -> None:
        plant = Plant(seed=0, job=job)
        with httpx.Client(base_url=self._url, trust_env=False, timeout=PATIENCE_S) as http:
            while True:
                summary = plant.advance()
                try:
                    answer = http.post(
                        "/v1/summaries", content=encode(summary), headers={"content-type": "application/json"}
                    )
                except httpx.TransportError:
                    return  # the server has gone
                with self._lock:
                    if answer.status_code == 200:
                        self.acknowledged.add((job, summary.step))
                    else:
                        self.refused.append(answer.status_code)
                    if len(self.acknowledged) >= 40:
                        self.reached.set()

    @contextmanager
    def coming(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._trainer, args=(f"run-{i}",)) for i in range(TRAINERS)]
        for thread in threads:
            thread.start()
        try:
            assert self.reached.wait(PATIENCE_S)
            yield
        finally:
            for thread in threads:
                thread.join(PATIENCE_S)
                assert not thread.is_alive()


def stored(db: Path) -> list[tuple[str, int]]:
    """Job and step of everything in the ledgers."""
    with closing(sqlite3.connect(db)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with closing(Database(db, read_only=True)) as database:
        store = Store(database)
        return [(job.name, entry.step) for job in store.jobs() for entry in store.recorded(job.name).entries]


def behind(db: Path) -> list[str]:
    """Jobs whose snapshot is not of the end of their ledger."""
    with closing(Database(db, read_only=True)) as database:
        store = Store(database)
        return [job.name for job in store.jobs() if store.read(job.name, _kept) != job.rows]


def _kept(past: Past) -> int:
    snapshot = past.snapshot()
    return 0 if snapshot is None else snapshot.seq


def log_of(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    assert process.stderr is not None
    return [json.loads(line) for line in process.stderr]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path, number: signal.Signals) -> None:
    db = tmp_path / "agent.db"
    with serving(db, stderr=subprocess.PIPE) as (process, url):
        load = Load(url)
        with load.coming():
            process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
        log = log_of(process)
    assert load.refused == []
    ledger = stored(db)
    assert load.acknowledged <= set(ledger)
    assert len(ledger) == len(set(ledger))
    assert behind(db) == []
    assert [one["message"].partition(" starts on ")[0] for one in log] == [
        "trimtab 0.1.0",
        f"ends, as {number.name} asked for it",
        "has ended",
    ]


def test_a_second_signal_ends_at_once_and_loses_nothing_either(tmp_path: Path) -> None:
    db = tmp_path / "agent.db"
    with serving(db, stderr=subprocess.PIPE) as (process, url):
        load = Load(url)
        # A request whose body never comes would hold the first signal up for as long as requests are waited for.
        host, port = url.removeprefix("http://").split(":")
        with load.coming(), socket.create_connection((host, int(port))) as waiting:
            head = f"POST /v1/summaries HTTP/1.1\r\nhost: {host}\r\ncontent-length: 9\r\n\r\n"
            waiting.sendall(head.encode())
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            for line in process.stderr:
                if "ends, as SIGTERM" in line:
                    break
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert load.acknowledged <= set(stored(db))


def test_a_request_that_never_comes_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with serving(tmp_path / "agent.db", stderr=subprocess.PIPE) as (process, url):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as waiting:
            waiting.sendall(f"POST /v1/summaries HTTP/1.1\r\nhost: {host}\r\ncontent-length: 9\r\n\r\n".encode())
            with httpx.Client(base_url=url, trust_env=False) as http:
                assert http.get("/livez").status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


def test_live_streams_do_not_hold_up_the_end(tmp_path: Path) -> None:
    with serving(tmp_path / "agent.db", stderr=subprocess.PIPE) as (process, url):
        with (
            httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as http,
            http.stream("GET", "/v1/stream") as stream,
        ):
            assert stream.status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        log = log_of(process)
    assert [(one["level"], one["message"].partition(" starts on ")[0]) for one in log] == [
        ("info", "trimtab 0.1.0"),
        ("info", "ends, as SIGTERM asked for it"),
        ("info", "has ended"),
    ]


def test_a_server_whose_database_is_held_ends_in_order(tmp_path: Path) -> None:
    """Another process writes and does not stop: nothing is acknowledged, and the end waits no longer than it may."""
    db = tmp_path / "agent.db"
    with serving(db) as (process, url), closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as http:
            answer = http.post(
                "/v1/summaries",
                content=encode(Plant(seed=0).advance()),
                headers={"content-type": "application/json"},
            )
            assert answer.status_code == 503
            assert http.get("/readyz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert stored(db) == []
