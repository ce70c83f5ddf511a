"""How late a step of a log is read, and how many a second."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trimtab.api.bench.servers import agent
from trimtab.api.bench.spread import Spread
from trimtab.api.errors import UserError
from trimtab.api.tail.assembly import Assembly
from trimtab.api.tail.cursor import CursorFile
from trimtab.api.tail.frameworks import FRAMEWORKS
from trimtab.api.tail.source import Place
from trimtab.api.tail.sources import open_source
from trimtab.api.tail.summaries import mapped, summary_of
from trimtab.api.tail.tailer import Tailer
from trimtab.hooks.transport.connection import Connection
from trimtab.hooks.wire import encode
from trimtab.storage.codec import SUMMARY
from trimtab.storage.database import Database
from trimtab.storage.store import Store

POLL_S = 0.25
AT_REST = 4000
"""Steps of a log that is read when it is finished."""
KINDS = ("wandb", "tensorboard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """How a job logs."""

    steps: int
    pause_s: float
    flush_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TailFigures:
    """Of one kind of log."""

    kind: str
    steps: int
    lag: Spread
    """From the logging of a step to its reading, seconds."""
    longest: float
    """The longest such lag, seconds."""
    lost: int
    """Steps that the agent did not get, or got twice."""
    read: float
    """Steps a second out of a finished log, as far as the bytes that would be sent."""
    delivered: float
    """Steps a second out of a finished log that the agent has stored."""


def bench_tail(seconds: float, rate: float, flush_s: float, done: Callable[[], None]) -> list[TailFigures]:
    """Figures of W&B and TensorBoard.

    Args:
        seconds: for which each live job logs.
        rate: steps that it logs a second.
        flush_s: `flush_secs` of SummaryWriter, which W&B has no counterpart of.
        done: called after each part.

    Raises:
        UserError: a library that writes the logs is not installed.
    """
    return [_figures(kind, Job(steps=int(seconds * rate), pause_s=1 / rate, flush_s=flush_s), done) for kind in KINDS]


def _figures(kind: str, job: Job, done: Callable[[], None]) -> TailFigures:
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        folder = Path(name)
        steps = job.steps
        with agent(str(folder / "agent.db"), folder) as served:
            _follow(kind, folder / "live", job, served.url, folder)
            done()
            _write(kind, folder / "rest")
            delivered = _deliver(folder / "rest", served.url, folder)
        done()
        database = Database(folder / "agent.db", read_only=True)
        try:
            entries = Store(database).recorded("live").entries
        finally:
            database.close()
        found = [SUMMARY.decode(entry.payload) for entry in entries]
        lags = [each.log.lag_seconds for each in found if each.log is not None and each.log.lag_seconds is not None]
        return TailFigures(
            kind=kind,
            steps=steps,
            lag=Spread.of(lags),
            longest=max(lags),
            lost=abs(steps - len(found)) + len(found) - len({each.step for each in found}),
            read=_read(folder / "rest"),
            delivered=delivered,
        )


def _command(kind: str, folder: Path, job: Job) -> list[str]:
    folder.mkdir()
    words = [kind, str(folder), str(job.steps), str(job.pause_s), str(job.flush_s)]
    return [sys.executable, "-m", "trimtab.api.bench.tail_writers", *words]


def _write(kind: str, folder: Path) -> None:
    command = _command(kind, folder, Job(steps=AT_REST, pause_s=0.0, flush_s=1.0))
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise UserError(f"{kind}: its library does not write logs here: {ended.stderr[-300:]}")


def _tailer(path: Path, job: str, url: str, folder: Path) -> tuple[Tailer, Connection]:
    connection = Connection(url)
    store = CursorFile(folder / f"{job}.json")
    return Tailer(open_source(path), path=str(path), job=job, store=store, agent=connection), connection


def _follow(kind: str, path: Path, job: Job, url: str, folder: Path) -> None:
    """Read a log while it is written, and the rest of it then."""
    command = _command(kind, path, job)
    with (
        (folder / f"{kind}.err").open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        ) as writer,
    ):
        assert writer.stdout is not None
        if not any(line.strip() == "begun" for line in iter(writer.stdout.readline, "")):
            raise UserError(f"{kind}: its library does not write logs here: see {errors.name}")
        tailer, connection = _tailer(path, "live", url, folder)
        while writer.poll() is None:
            tailer.look()
            time.sleep(POLL_S)
        while tailer.look(last=True).more:
            pass
        connection.hang_up()


def _deliver(path: Path, url: str, folder: Path) -> float:
    tailer, connection = _tailer(path, "rest", url, folder)
    begun = time.perf_counter()
    while tailer.look(last=True).more:
        pass
    took = time.perf_counter() - begun
    connection.hang_up()
    return tailer.cursor.steps / took


def _read(path: Path) -> float:
    source, state, count = open_source(path), Assembly(attempt=1), 0
    place: Place = {}
    table = FRAMEWORKS["trl"]
    begun = time.perf_counter()
    while True:
        piece = source.read(place)
        place = piece.place
        state, steps = state.taking(piece.rows, table.axis, 0.0)
        for step in steps:
            found = mapped(step.values, table)
            facts = {"job": "rest", "source": source.kind, "framework": table.name}
            encode(summary_of(step, found, **facts, vanished=(), now=time.time()))
            count += 1
        if not piece.more:
            return count / (time.perf_counter() - begun)
