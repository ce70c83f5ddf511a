"""Prometheus metrics, read from the store when they are scraped.

Labels stay few: `job` is bounded by `MAX_JOBS` and by `QUIET_AFTER`, signal and detector names are those of this
program; steps, attempts and free text are never labels. Each app has a registry of its own.
"""

from __future__ import annotations

import logging
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
"""Jobs that are exported, those that reported last."""
QUIET_AFTER = 24 * 3600.0
"""Seconds without a summary after which a job is exported no more."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SEVERITY = {State.OK: 0.0, State.WARN: 1.0, State.CRITICAL: 2.0}

Gauges: TypeAlias = dict[str, GaugeMetricFamily]
Sample: TypeAlias = tuple[str, list[str], float]
"""Metric, labels and value."""
_log = logging.getLogger("trimtab.api")


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
        for result in (*Taken, "conflict", "invalid", "failed"):
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
            except Exception:
                self._summaries.labels("failed").inc()
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
        unreadable = 0
        for job in _reporting(service):
            try:
                samples, lost = _samples(service, job_view(service, job)), float(service.dropped(job))
            except Exception:  # one job must not take the others out of sight
                _log.exception("job %r is left out of the metrics", job)
                unreadable += 1
                continue
            for name, labels, value in samples:
                gauges[name].add_metric(labels, value)
            dropped.add_metric([job], lost)
        yield from gauges.values()
        yield dropped
        yield GaugeMetricFamily(
            "trimtab_unreadable_jobs", "Jobs left out because of an error; see the log.", unreadable
        )


def _reporting(service: Service) -> list[str]:
    """Names of the jobs that are exported."""
    reports = [(job.last_received_at, job.name) for job in service.store.jobs() if job.last_received_at is not None]
    recent = [report for report in reports if service.clock() - report[0] <= QUIET_AFTER]
    return [name for _, name in sorted(recent, reverse=True)[:MAX_JOBS]]


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


def _samples(service: Service, line: JobView) -> list[Sample]:
    """Everything that is exported of one job. Raises whatever is wrong with it."""
    state = service.state(line.name)
    job = [line.name]
    if line.step is None or line.attempt is None or line.last_received_at is None:
        return []
    found: list[Sample] = [
        ("trimtab_step", job, line.step),
        ("trimtab_last_summary_timestamp_seconds", job, line.last_received_at),
        ("trimtab_controls_generation", job, state.generation),
        ("trimtab_quarantined_summaries", job, line.quarantined),
    ]
    if state.reported is not None:
        found.append(("trimtab_controls_applied_generation", job, state.reported.generation))
    for severity in (State.WARN, State.CRITICAL):
        for phase in (Phase.PENDING, Phase.FIRING):
            open_now = sum(one.severity is severity and one.phase is phase for one in state.incidents.values())
            found.append(("trimtab_incidents", [line.name, severity, phase], open_now))
    for name, verdict in state.verdicts.items():
        severity_now = SEVERITY.get(verdict.state, float("nan"))
        found.append(("trimtab_detector_severity", [line.name, name], severity_now))
    for name, value in service.store.signals_at(line.name, line.attempt, line.step).items():
        if name in SIGNALS:
            found.append((f"trimtab_signal_{name}", job, value))
    return [(name, labels, float(value)) for name, labels, value in found]
