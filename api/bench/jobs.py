"""Hundreds of jobs that report at the pace of training: what the server needs for them, and whether it loses any."""

from __future__ import annotations

import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from trimtab.api.bench.bodies import Summaries
from trimtab.api.bench.ingest import check_ledger
from trimtab.api.bench.load import Driven, Load, drive
from trimtab.api.bench.servers import Served, agent, resident_mb
from trimtab.hooks.records import StepSummary

OVERVIEW_S = 1.0
"""Seconds between two looks at the overview."""
SETTLED = 0.2
"""Share of the time after which memory should not grow any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What became of the jobs."""

    jobs: int
    seconds: float
    summaries: int
    """Acknowledged; the ledger holds exactly as many of each job."""
    p50_ms: float
    p99_ms: float
    """Of a request with one summary."""
    overview_p50_ms: float
    overview_p99_ms: float
    """Of `GET /v1/jobs` meanwhile."""
    memory_mb: tuple[float, ...]
    """Of the server, at equal distances in time."""
    growth_mb_per_hour: float
    """Slope of the memory after the first fifth of the time (Theil and Sen)."""


def bench_jobs(
    jobs: int, minutes: float, pace: float, steps: list[StepSummary], *, on_look: Callable[[], None] = lambda: None
) -> Soak:
    """Have each of some jobs report `pace` of the steps a second to one server on SQLite, for some minutes.

    `on_look` is called each time that the overview and the memory are looked at, once a second.

    Raises:
        LoadError: a request was refused.
        LostError: the ledger does not hold exactly what was acknowledged.
        ServerError: the server did not start.
    """
    target = Summaries.of(f"bench-{secrets.token_hex(4)}", steps)
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        folder = Path(name)
        db = str(folder / "bench.db")
        with agent(db, folder) as server:
            watch = _Watch(server, on_look)
            watch.start()
            try:
                driven = drive(target, Load(urls=[server.url], jobs=jobs, seconds=60 * minutes, pace=pace))
            finally:
                watch.stop()
        check_ledger(db, target, driven)
    return _soak(jobs, driven, watch)


class _Watch(threading.Thread):
    """Looks at the overview and at the server's memory, once a second."""

    def __init__(self, server: Served, on_look: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._server, self._on_look, self._stop_now = server, on_look, threading.Event()
        self.overview_ms: list[float] = []
        self.memory: list[tuple[float, float]] = []
        """Seconds, and MB."""
        self.failed: Exception | None = None

    def run(self) -> None:
        start = time.perf_counter()
        try:
            while not self._stop_now.wait(OVERVIEW_S):
                self._look(start)
        except Exception as error:
            self.failed = error

    def stop(self) -> None:
        """End it. Raises what it failed with."""
        self._stop_now.set()
        self.join()
        if self.failed is not None:
            raise self.failed

    def _look(self, start: float) -> None:
        begun = time.perf_counter()
        with urlopen(f"{self._server.url}/v1/jobs", timeout=60) as answer:
            answer.read()
        self.overview_ms.append(1e3 * (time.perf_counter() - begun))
        self.memory.append((begun - start, resident_mb(self._server.pid)))
        self._on_look()


def _soak(jobs: int, driven: Driven, watch: _Watch) -> Soak:
    overview_p50, overview_p99 = np.percentile(watch.overview_ms, (50, 99)).tolist()
    tail = watch.memory[int(SETTLED * len(watch.memory)) :]
    shown = [memory for _, memory in watch.memory]
    return Soak(
        jobs=jobs,
        seconds=driven.seconds,
        summaries=sum(driven.by_job),
        p50_ms=driven.p50_ms,
        p99_ms=driven.p99_ms,
        overview_p50_ms=overview_p50,
        overview_p99_ms=overview_p99,
        memory_mb=tuple(shown[:: max(len(shown) // 10, 1)]),
        growth_mb_per_hour=3600 * slope(tail),
    )


def slope(points: list[tuple[float, float]]) -> float:
    """Median of the slopes between the points of the first half and those as far on in the second."""
    half = len(points) // 2
    pairs = zip(points, points[half:], strict=False) if half else ()
    return statistics.median([(b - a) / (t - s) for (s, a), (t, b) in pairs] or [0.0])
