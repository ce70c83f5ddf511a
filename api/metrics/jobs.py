"""The metrics of jobs, read when they are scraped.

A job is exported while it is not archived and has reported within `QUIET_AFTER`. The `MAX_JOBS` that were made first
are exported one by one, so that a job that is exported stays so, whoever comes; what can be added up of the others is,
under a name that no job can have. Detectors, remedies, tensors and modes are those of this program: of what a run or a
person writes, the job's name alone is a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from trimtab.agent.run_state import RunState
from trimtab.api.health_view import overview
from trimtab.api.metrics.counts import JobCounts, Key
from trimtab.api.metrics.facts import Facts, severity
from trimtab.api.metrics.families import Family, labelled
from trimtab.api.metrics.known import Known
from trimtab.api.metrics.signals import SIGNAL_METRICS
from trimtab.api.service import Service
from trimtab.storage.observations import observed
from trimtab.storage.overview import JobLine

MAX_JOBS = 200
"""Jobs that are exported one by one."""
OTHERS = "(others)"
"""Stands for the jobs beyond them: no job is called so."""
QUIET_AFTER = 24 * 3600.0
"""Seconds without a summary after which a job is exported no more."""

GAUGES = {
    "trimtab_job_info": "The mode that the job is in.",
    "trimtab_job_severity": "The worst that can be said of the job: 0 ok, 1 warn, 2 critical; NaN where nothing can.",
    "trimtab_attempt": "Newest attempt.",
    "trimtab_step": "Newest step of that attempt.",
    "trimtab_step_timestamp_seconds": "When the summary of that step came.",
    "trimtab_silent_after_seconds": "Time without a summary after which the job is silent.",
    "trimtab_incidents": "Open incidents; a suppressed one fires, and nobody is told of it.",
    "trimtab_detector_severity": "0 ok, 1 warn, 2 critical; NaN where it could not be judged or was not observed.",
    "trimtab_controls_generation": "Generation of the overrides that are wanted.",
    "trimtab_controls_applied_generation": "Generation of the overrides that the trainer reports.",
    "trimtab_controls_in_sync": "1 where the trainer reports exactly the overrides that are wanted.",
    "trimtab_remedies": "Remedies of the agent that are in force.",
    "trimtab_proposals": "Changes that wait for a person, or stand as advice.",
    "trimtab_remediation_locked": "1 where the agent acts no more until a person sets the job's mode.",
    "trimtab_jobs_not_exported": "Jobs that are exported together, as job (others).",
    "trimtab_unreadable_jobs": "Jobs that are left out because of an error; see the log.",
}
COUNTERS = {
    "trimtab_dropped_summaries_total": "Summaries that the trainer's process has lost.",
    "trimtab_quarantined_summaries_total": "Summaries refused because another one held their key.",
    "trimtab_nonfinite_tokens_total": "Values under the loss mask that are not finite, or no log-probs, by tensor.",
    "trimtab_remediation_actions_total": "What became of remedies, and of people's changes of the controls.",
}


class Jobs:
    """Reads the metrics of all jobs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known = Known(service)
        self._counts = JobCounts()
        service.listeners += [self._known.take, self._counts.take]

    def text(self) -> str:
        """All of them, in Prometheus' text format. Not for two threads at once. Raises `DBAPIError`."""
        now = self._service.clock()
        lines = overview(self._service).lines(since=now - QUIET_AFTER)[::-1]
        reporting = {line.job.name for line in lines}
        self._known.keep(reporting)
        self._counts.keep(reporting)
        states = self._known.states(lines)
        told = [line for line in lines if line.job.name in states]
        facts = {line.job.name: Facts.of(line, states[line.job.name], now=now) for line in told}
        alone, others = told[:MAX_JOBS], told[MAX_JOBS:]
        page = _Page()
        for line in alone:
            page.add(line.job.name, facts[line.job.name])
            page.add_state(line.job.name, states[line.job.name])
        page.add_signals(self._observed(alone, states))
        if others:
            page.add(OTHERS, Facts.together([facts[line.job.name] for line in others], now=now))
        names = {line.job.name for line in alone}
        page.add_counts("trimtab_nonfinite_tokens_total", ("tensor", "kind"), self._counts.nonfinite(), names)
        page.add_counts("trimtab_remediation_actions_total", ("action", "outcome"), self._counts.actions(), names)
        page.one("trimtab_jobs_not_exported", len(others))
        page.one("trimtab_unreadable_jobs", self._known.unreadable)
        return page.text()

    def _observed(self, lines: Sequence[JobLine], states: Mapping[str, RunState]) -> dict[str, dict[str, float]]:
        """The signals of each job's newest step."""
        newest = {line.job.name: states[line.job.name] for line in lines}
        places = {(line.id, newest[line.job.name].attempt, newest[line.job.name].last_step): line for line in lines}
        found = observed(self._service.database, places)
        return {places[place].job.name: signals for place, signals in found.items()}


class _Page:
    def __init__(self) -> None:
        self._families = {
            **{name: Family(name, help) for name, help in GAUGES.items()},
            **{name: Family(name, help, "counter") for name, help in COUNTERS.items()},
        }
        self._signals = {signal: Family(*metric) for signal, metric in SIGNAL_METRICS.items()}

    def one(self, name: str, value: float, labels: str = "") -> None:
        self._families[name].add(labels, value)

    def add(self, job: str, facts: Facts) -> None:
        """What a job has in common with several together."""
        labels = labelled(job=job)
        self.one("trimtab_job_severity", facts.severity, labels)
        self.one("trimtab_step_timestamp_seconds", facts.reported_at, labels)
        self.one("trimtab_silent_after_seconds", facts.patience, labels)
        self.one("trimtab_controls_in_sync", int(facts.in_sync), labels)
        self.one("trimtab_remediation_locked", int(facts.locked), labels)
        self.one("trimtab_remedies", facts.remedies, labels)
        self.one("trimtab_proposals", facts.proposals, labels)
        self.one("trimtab_dropped_summaries_total", facts.dropped, labels)
        self.one("trimtab_quarantined_summaries_total", facts.quarantined, labels)
        for (detector, grade, phase), number in sorted(facts.incidents.items()):
            where = labelled(job=job, detector=detector, severity=grade, phase=phase)
            self.one("trimtab_incidents", number, where)

    def add_state(self, job: str, state: RunState) -> None:
        """What can be said of one job only."""
        labels = labelled(job=job)
        self.one("trimtab_job_info", 1, labelled(job=job, mode=state.mode.value))
        self.one("trimtab_attempt", state.attempt, labels)
        self.one("trimtab_step", state.last_step, labels)
        self.one("trimtab_controls_generation", state.generation, labels)
        if state.reported is not None:
            self.one("trimtab_controls_applied_generation", state.reported.generation, labels)
        for name, verdict in state.verdicts.items():
            self.one("trimtab_detector_severity", severity(verdict.state), labelled(job=job, detector=name))

    def add_signals(self, observed: Mapping[str, Mapping[str, float]]) -> None:
        """Signals by job; the trainer's own scalars, which stand beside them, are not exported."""
        for job, signals in observed.items():
            labels = labelled(job=job)
            for signal, value in signals.items():
                family = self._signals.get(signal)
                if family is not None:
                    family.add(labels, value)

    def add_counts(
        self, name: str, labels: tuple[str, str], counts: Sequence[tuple[Key, int]], alone: set[str]
    ) -> None:
        """A counter with two more labels, those of all other jobs added up."""
        merged: Counter[Key] = Counter()
        for (job, first, second), number in counts:
            merged[job if job in alone else OTHERS, first, second] += number
        for (job, first, second), number in sorted(merged.items()):
            where = labelled(**dict(zip(("job", *labels), (job, first, second), strict=True)))
            self.one(name, number, where)

    def text(self) -> str:
        return "".join(family.text() for family in (*self._families.values(), *self._signals.values()))
