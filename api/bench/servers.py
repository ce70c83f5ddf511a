"""Servers in processes of their own, for as long as they are measured."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

START_S = 120.0
"""Within which a server has to answer."""
STOP_S = 60.0
UNLIMITED = "1000000/1000000"
"""Rate limits that nothing here comes near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that answers."""

    url: str
    pid: int


class ServerError(RuntimeError):
    """A server that did not start; the message says what it said."""


@contextmanager
def agent(db: str, folder: Path) -> Iterator[Served]:
    """`trimtab serve` on a database, which is shut down as by Ctrl-C after the block."""
    command = [sys.executable, "-m", "trimtab", "serve", "--db", db, "--port", "0", "--json"]
    log = folder / "agent.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [*command, "--ingest-limit", UNLIMITED], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise ServerError(f"trimtab serve did not start: {_end_of(log)}")
        yield Served(url=json.loads(line)["url"], pid=process.pid)
    finally:
        _stop(process)


@contextmanager
def other(command: Sequence[str], port: int, folder: Path, name: str) -> Iterator[Served]:
    """Another server, which is to answer at a port of this machine."""
    log = folder / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=folder)
    try:
        _wait(process, port, name, log)
        yield Served(url=f"http://127.0.0.1:{port}", pid=process.pid)
    finally:
        _stop(process)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def resident_mb(pid: int) -> float:
    """Memory of a process that is in use, MB (10^6 bytes). Linux only."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    return kilobytes * 1024 / 1e6


def _wait(process: subprocess.Popen[bytes], port: int, name: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
            return
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
    raise ServerError(f"{name} did not start: {_end_of(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:].strip()
