"""What this process counts of its own work: requests, summaries, deliveries, and what it takes of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from trimtab.api.service import Taken
from trimtab.hooks.records import RecordError
from trimtab.storage.store import ConflictError

CONFLICT, INVALID, FAILED = "conflict", "invalid", "failed"
INGEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0)
"""Seconds."""
DELIVERY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0)
"""Seconds; an attempt is given up after 15."""
SEEN = ("200", "401", "403", "429")
"""Statuses that are counted from the start, so that the first one shows as an increase."""


class ProcessMetrics:
    """The registry of one process."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Info("trimtab_build", "This program.", registry=registry).info({"version": version("trimtab")})
        self._rows = Counter(
            "trimtab_ingest_rows", "Summaries that came in, by what became of them.", ["result"], registry=registry
        )
        for result in (*Taken, CONFLICT, INVALID, FAILED):
            self._rows.labels(result)
        self._ingest = Histogram(
            "trimtab_ingest_duration_seconds",
            "Time to store and fold what one request brought.",
            buckets=INGEST_BUCKETS,
            registry=registry,
        )
        self._responses = Counter(
            "trimtab_http_responses", "Answers to requests, by HTTP status.", ["code"], registry=registry
        )
        for code in SEEN:
            self._responses.labels(code)
        self._deliveries = Histogram(
            "trimtab_delivery_duration_seconds",
            "Time that one attempt to deliver a notification took.",
            ["shape", "result"],
            buckets=DELIVERY_BUCKETS,
            registry=registry,
        )

    def follow(self, name: str, help: str, read: Callable[[], float], *, grows: bool = False) -> None:
        """Export what is read at every scrape; what only grows is a counter, and gets `_total` behind its name."""
        self._registry.register(_Followed(name, help, read, CounterMetricFamily if grows else GaugeMetricFamily))

    @contextmanager
    def ingest(self) -> Iterator[Callable[[str], None]]:
        """Time the block; it says in a word what became of each summary, or raises, which stands for one."""

        def count(result: str) -> None:
            self._rows.labels(result).inc()

        with self._ingest.time():
            try:
                yield count
            except Exception as error:
                count(_result(error))
                raise

    def invalid(self) -> None:
        """Count a summary that could not be read."""
        self._rows.labels(INVALID).inc()

    def answered(self, status: int) -> None:
        """Count an answer."""
        self._responses.labels(str(status)).inc()

    def delivered(self, shape: str, result: str, seconds: float) -> None:
        """Count an attempt to deliver a notification: its shape, and a word for what came of it, of a few."""
        self._deliveries.labels(shape, result).observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)


Followed = CounterMetricFamily | GaugeMetricFamily


class _Followed(Collector):
    def __init__(self, name: str, help: str, read: Callable[[], float], kind: type[Followed]) -> None:
        self._name, self._help, self._read, self._kind = name, help, read, kind

    def collect(self) -> Iterable[Followed]:
        """One sample."""
        yield self._kind(self._name, self._help, value=self._read())


def _result(error: Exception) -> str:
    if isinstance(error, ConflictError):
        return CONFLICT
    return INVALID if isinstance(error, RecordError) else FAILED
