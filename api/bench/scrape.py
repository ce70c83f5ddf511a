"""What one scrape of many jobs costs the agent, beside what `prometheus_client` takes to write the same samples."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from trimtab.agent.signals.behaviour import SCALARS
from trimtab.api.bench.hook import batch, spread
from trimtab.api.ingest import IngestQueue
from trimtab.api.metrics import Metrics
from trimtab.api.service import Service
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.memory import MemoryTransport

STEPS = 30
"""Summaries of each job before it is looked at."""


def bench_scrape(jobs: int = 200, repeats: int = 30) -> dict[str, Any]:
    """Time scrapes of a service on SQLite whose jobs have reported, each of them once more before every scrape.

    In milliseconds of this thread's processor time, each with its `median`, `p10` and `p90`: `scrape` is everything,
    queries included, and `peer` what `prometheus_client.generate_latest` takes to write the same samples. `first` is
    the first scrape. `ratio` is the median of `peer` over that of `scrape`.
    """
    with tempfile.TemporaryDirectory() as folder:
        service = Service.open(Path(folder) / "bench.db")
        try:
            metrics = Metrics(service, IngestQueue(service))
            names = [f"bench-{number:04}" for number in range(jobs)]
            summaries = iter(_summaries(STEPS + repeats))
            for _ in range(STEPS):
                _report(service, next(summaries), names)
            page = b""
            first = _milliseconds(metrics.exposition)
            scrape, peer = [], []
            for summary in summaries:
                _report(service, summary, names)
                scrape.append(_milliseconds(metrics.exposition))
                page = metrics.exposition()
                registry = _registry(page)
                peer.append(_milliseconds(partial(generate_latest, registry)))
        finally:
            service.close()
    taken, theirs = spread(scrape), spread(peer)
    samples = sum(not line.startswith(b"#") for line in page.splitlines())
    return {
        "jobs": jobs,
        "samples": samples,
        "bytes": len(page),
        "repeats": repeats,
        "first": first,
        "scrape": taken,
        "peer": theirs,
        "ratio": theirs["median"] / taken["median"],
    }


def _summaries(steps: int) -> list[StepSummary]:
    """The same step over and over, with every scalar that is a signal."""
    transport = MemoryTransport()
    with Emitter(transport, job="bench", attempt=1) as emitter:
        tensors = batch()
        emitter.observe(**tensors)
        emitter.end_step(step=0, scalars=dict.fromkeys(SCALARS, 0.5))
    (summary,) = transport.sent
    return [replace(summary, step=step) for step in range(steps)]


def _report(service: Service, summary: StepSummary, jobs: Iterable[str]) -> None:
    service.commit([service.summary_input(replace(summary, job=job)) for job in jobs])


def _registry(page: bytes) -> CollectorRegistry:
    families = list(text_string_to_metric_families(page.decode()))

    class Same(Collector):
        def describe(self) -> Iterable[Metric]:
            return ()

        def collect(self) -> Iterable[Metric]:
            return families

    registry = CollectorRegistry()
    registry.register(Same())
    return registry


def _milliseconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - start)
