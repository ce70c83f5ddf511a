"""Prometheus metrics, read from the store when they are scraped.

Labels stay few: `job` is bounded by `MAX_JOBS` and by `QUIET_AFTER`, signal and detector names are those of this
program; steps, attempts and free text are never labels. Each app has a registry of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from trimtab.agent.signals import SIGNALS
from trimtab.agent.state import Phase, State
from trimtab.api.health_view import JobView, job_view
from trimtab.api.service import Service, Taken
from trimtab.hooks.records import RecordError
from trimtab.storage.store import ConflictError

MAX_JOBS = 200
"""Jobs that are exported, the newest first."""
QUIET_AFTER = 24 * 3600.0
"""Seconds without a summary after which a job is exported no more."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SEVERITY = {State.OK: 0.0, State.WARN: 1.0, State.CRITICAL: 2.0}

Gauges: TypeAlias = dict[str, GaugeMetricFamily]


class Metrics:
    """The registry of one app, and the counters of its ingest."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._summaries = Counter(
            "trimtab_ingest_summaries",
            "Summaries that came in, by what became of them.",
            ["result"],
            registry=self._registry,
        )
        for result in (*Taken, "conflict", "invalid"):
            self._summaries.labels(result)
        self._seconds = Histogram(
            "trimtab_ingest_duration_seconds",
            "Time to store and fold one summary.",
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_Jobs(service))

    @contextmanager
    def ingest(self) -> Iterator[Callable[[Taken], None]]:
        """Time the block; it reports what became of the summary, or raises."""
        with self._seconds.time():
            try:
                yield lambda result: self._summaries.labels(result).inc()
            except ConflictError:
                self._summaries.labels("conflict").inc()
                raise
            except RecordError:
                self.invalid()
                raise

    def invalid(self) -> None:
        """Count a summary that could not be read."""
        self._summaries.labels("invalid").inc()

    def exposition(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _Jobs(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are checked when they are scraped, so that registering reads no database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Every metric of every job that is alive."""
        yield InfoMetricFamily("trimtab_build", "This program.", {"version": version("trimtab")})
        service = self._service
        gauges = _gauges()
        dropped = CounterMetricFamily(
            "trimtab_dropped_summaries", "Summaries that the trainer's process lost.", labels=["job"]
        )
        for known in service.store.jobs()[:MAX_JOBS]:
            line = job_view(service, known.name)
            if line.step is None or service.clock() - (line.last_received_at or 0.0) > QUIET_AFTER:
                continue
            _read(service, line, gauges)
            dropped.add_metric([known.name], service.dropped(known.name))
        yield from gauges.values()
        yield dropped


def _gauges() -> Gauges:
    job = ["job"]
    families = [
        GaugeMetricFamily("trimtab_step", "Newest step.", labels=job),
        GaugeMetricFamily("trimtab_last_summary_timestamp_seconds", "When the last summary came.", labels=job),
        GaugeMetricFamily("trimtab_controls_generation", "Generation of the overrides wanted.", labels=job),
        GaugeMetricFamily("trimtab_controls_applied_generation", "Generation in effect in the trainer.", labels=job),
        GaugeMetricFamily("trimtab_quarantined_summaries", "Summaries refused for a taken key.", labels=job),
        GaugeMetricFamily("trimtab_incidents", "Open incidents.", labels=["job", "severity", "phase"]),
        GaugeMetricFamily(
            "trimtab_detector_severity",
            "0 ok, 1 warn, 2 critical; NaN where it could not be judged or was not observed.",
            labels=["job", "detector"],
        ),
    ]
    signals = [
        GaugeMetricFamily(f"trimtab_signal_{name}", _first_line(read.__doc__), labels=job)
        for name, read in SIGNALS.items()
    ]
    return {family.name: family for family in (*families, *signals)}


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0] if text else ""


def _read(service: Service, line: JobView, gauges: Gauges) -> None:
    state = service.state(line.name)
    job = [line.name]
    assert line.step is not None
    assert line.attempt is not None
    assert line.last_received_at is not None
    gauges["trimtab_step"].add_metric(job, line.step)
    gauges["trimtab_last_summary_timestamp_seconds"].add_metric(job, line.last_received_at)
    gauges["trimtab_controls_generation"].add_metric(job, state.generation)
    if state.reported is not None:
        gauges["trimtab_controls_applied_generation"].add_metric(job, state.reported.generation)
    gauges["trimtab_quarantined_summaries"].add_metric(job, service.store.quarantined(line.name))
    for severity in (State.WARN, State.CRITICAL):
        for phase in (Phase.PENDING, Phase.FIRING):
            open_now = sum(one.severity is severity and one.phase is phase for one in state.incidents.values())
            gauges["trimtab_incidents"].add_metric([line.name, severity, phase], open_now)
    for name, verdict in state.verdicts.items():
        gauges["trimtab_detector_severity"].add_metric([line.name, name], SEVERITY.get(verdict.state, float("nan")))
    for name, value in service.store.signals_at(line.name, line.attempt, line.step).items():
        if name in SIGNALS:
            gauges[f"trimtab_signal_{name}"].add_metric(job, value)
