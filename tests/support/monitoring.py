"""A real Prometheus and a real Alertmanager, each on a free port, with its data in a folder of the test."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from receivers import Receiver

PROGRAMS = {
    "prometheus": ("prometheus",),
    "promtool": ("promtool",),
    "alertmanager": ("prometheus-alertmanager", "alertmanager"),
    "amtool": ("amtool",),
}
"""What each is called: Debian's packages prometheus and prometheus-alertmanager have all four."""
PATIENCE_S = 60.0
"""After which a condition that was waited for is held to be wrong."""
T = TypeVar("T")


class NoMonitoringError(RuntimeError):
    """This machine lacks a program; the message says which."""


def program(name: str) -> str:
    """Path of one of `PROGRAMS`. Raises `NoMonitoringError`."""
    for candidate in PROGRAMS[name]:
        found = shutil.which(candidate)
        if found is not None:
            return found
    raise NoMonitoringError(f"{name} is not installed (Debian: apt-get install prometheus prometheus-alertmanager)")


def eventually(read: Callable[[], T | None], what: str) -> T:
    """What `read` gives, as soon as it gives something."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = read()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {PATIENCE_S:.0f} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _running(folder: Path, name: str, url: str, *arguments: str) -> Iterator[httpx.Client]:
    with (
        (folder / f"{name}.log").open("w") as log,
        httpx.Client(base_url=url, trust_env=False, timeout=10) as client,
        subprocess.Popen([program(name), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):

        def ready() -> bool:
            assert process.poll() is None, Path(log.name).read_text()
            try:
                return client.get("/-/ready").status_code == 200
            except httpx.TransportError:
                return False

        try:
            eventually(ready, f"{name} is ready")
            yield client
        finally:
            process.terminate()


class Prometheus:
    """Asks a Prometheus."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query."""
        return self._asked("query", query=expression)["result"]  # type: ignore[no-any-return]

    def values(self, expression: str, label: str) -> dict[str, str]:
        """The value of each sample, as Prometheus writes it, by one of its labels."""
        return {sample["metric"].get(label, ""): sample["value"][1] for sample in self.query(expression)}

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health."""
        return [rule for group in self._asked("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """Every target that is scraped."""
        return self._asked("targets")["activeTargets"]  # type: ignore[no-any-return]

    def _asked(self, path: str, **parameters: str) -> dict[str, Any]:
        answer = self._client.get(f"/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]  # type: ignore[no-any-return]


@contextmanager
def prometheus(folder: Path, config: str) -> Iterator[Prometheus]:
    """A Prometheus with this configuration; what that names by relative paths lies in `folder`."""
    (folder / "prometheus.yml").write_text(config)
    port = free_port()
    arguments = (
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus-data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--rules.alert.resend-delay=1s",
    )
    with _running(folder, "prometheus", f"http://127.0.0.1:{port}", *arguments) as client:
        yield Prometheus(client)


@contextmanager
def alertmanager(folder: Path, config: str) -> Iterator[httpx.Client]:
    """An Alertmanager with this configuration, by a client of its address."""
    (folder / "alertmanager.yml").write_text(config)
    port = free_port()
    arguments = (
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager-data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )
    with _running(folder, "alertmanager", f"http://127.0.0.1:{port}", *arguments) as client:
        yield client


def alerts_in(receiver: Receiver, **labels: str) -> list[dict[str, Any]]:
    """Alerts that somebody was told of by webhooks of Alertmanager's shape, and that have these labels."""
    found = [alert for request in receiver.received for alert in request.json["alerts"]]
    return [alert for alert in found if labels.items() <= alert["labels"].items()]
