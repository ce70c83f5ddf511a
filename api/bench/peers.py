"""Loggers of scalars that are measured beside trimtab: each in an environment of its own, on SQLite, told the same
scalars over HTTP, one request a step."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from trimtab.api.bench.bodies import scalars_of
from trimtab.api.bench.load import Call, Target
from trimtab.api.bench.servers import Served, free_port, other
from trimtab.hooks.records import StepSummary

PROJECT = "bench"
WRITE_TOKEN = "bench"
"""Of a server that only this machine reaches, for as long as it is measured."""


class PeerError(RuntimeError):
    """A logger that could not be installed; the message says why."""


class Peer(ABC):
    """Another logger."""

    title: str
    package: str

    def served(self, environments: Path, work: Path) -> AbstractContextManager[Served]:
        """Its server, which keeps what it is told in the folder `work`. Raises `PeerError`, `ServerError`."""
        port = free_port()
        python = _environment(environments / self.package, self.package)
        return other(self.command(python, port, work), port, work, self.package)

    @abstractmethod
    def command(self, python: Path, port: int, work: Path) -> list[str]:
        """What starts its server."""

    @abstractmethod
    def target(self, url: str, jobs: int, steps: list[StepSummary]) -> Target:
        """Requests for it, with a run of its own for each job."""


class Mlflow(Peer):
    """MLflow's REST `log-batch`."""

    title = "MLflow, SQLite, 1 process"
    package = "mlflow"

    def command(self, python: Path, port: int, work: Path) -> list[str]:
        """Its tracking server."""
        store = ["--backend-store-uri", f"sqlite:///{work / 'mlflow.db'}"]
        listen = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        return [str(python), "-m", "mlflow", "server", *store, "--artifacts-destination", str(work), *listen]

    def target(self, url: str, jobs: int, steps: list[StepSummary]) -> Target:
        """`log-batch` of each step's scalars."""
        runs = tuple(_mlflow_run(url) for _ in range(jobs))
        return LogBatch(runs=runs, scalars=_finite(steps))


class Trackio(Peer):
    """trackio's own server."""

    title = "trackio, SQLite, 1 process"
    package = "trackio"

    def command(self, python: Path, port: int, work: Path) -> list[str]:
        """Its dashboard, which takes in what is logged."""
        settings = {"TRACKIO_DIR": str(work), "TRACKIO_WRITE_TOKEN": WRITE_TOKEN}
        show = f"trackio.show(host='127.0.0.1', server_port={port}, share=False, open_browser=False, block_thread=True)"
        return [str(python), "-c", f"import os; os.environ.update({settings!r}); import trackio; {show}"]

    def target(self, url: str, jobs: int, steps: list[StepSummary]) -> Target:  # noqa: ARG002 - runs need no making
        """`bulk_log` of each step's scalars."""
        return BulkLog(scalars=_finite(steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch(Target):
    """Scalars for MLflow."""

    runs: tuple[str, ...]
    """Run of each job."""
    scalars: tuple[dict[str, float], ...]

    def calls(self, job: int) -> Iterator[Call]:
        """A job's steps from 0 on."""
        for step in itertools.count():
            scalars = self.scalars[step % len(self.scalars)]
            metrics = [{"key": name, "value": x, "timestamp": step, "step": step} for name, x in scalars.items()]
            body = {"run_id": self.runs[job], "metrics": metrics}
            yield Call(path="/api/2.0/mlflow/runs/log-batch", body=json.dumps(body).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkLog(Target):
    """Scalars for trackio."""

    scalars: tuple[dict[str, float], ...]

    def calls(self, job: int) -> Iterator[Call]:
        """A job's steps from 0 on."""
        headers = {"x-trackio-write-token": WRITE_TOKEN}
        for step in itertools.count():
            metrics = self.scalars[step % len(self.scalars)]
            entry = {"project": PROJECT, "run": f"bench-{job}", "metrics": metrics, "step": step, "config": None}
            body = {"logs": [entry], "hf_token": None}
            yield Call(path="/api/bulk_log", body=json.dumps(body).encode(), headers=headers)


PEERS: tuple[Peer, ...] = (Mlflow(), Trackio())


def _finite(steps: list[StepSummary]) -> tuple[dict[str, float], ...]:
    return tuple({name: x for name, x in scalars_of(step).items() if math.isfinite(x)} for step in steps)


def _mlflow_run(url: str) -> str:
    body = json.dumps({"experiment_id": "0", "start_time": 0}).encode()
    request = Request(f"{url}/api/2.0/mlflow/runs/create", body, {"content-type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        made: dict[str, Any] = json.load(answer)
    run: str = made["run"]["info"]["run_id"]
    return run


def _environment(folder: Path, package: str) -> Path:
    """The Python of an environment with the package, which is made on first use."""
    python, done = folder / "bin" / "python", folder / "installed"
    if done.exists():
        return python
    for command in ([sys.executable, "-m", "venv", str(folder)], [str(python), "-m", "pip", "install", "-q", package]):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise PeerError(f"{package} cannot be installed in {folder}: {ended.stderr.strip()[-1000:]}")
    done.touch()
    return python
