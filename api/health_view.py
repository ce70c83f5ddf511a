"""A job's health in one answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isfinite
from statistics import median

from pydantic import Field

from trimtab.agent.detector import Role
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Incident, Mode, Phase, State, Verdict
from trimtab.api.controls_view import ControlsView, controls_view
from trimtab.api.log_view import LogView, log_view
from trimtab.api.proposal_view import ProposalView, proposal_views
from trimtab.api.restore import UnreadableJobError
from trimtab.api.service import Service
from trimtab.api.views import View
from trimtab.storage.overview import JobLine, Overview

WORST_FIRST = (State.CRITICAL, State.WARN, State.OK, State.INCONCLUSIVE, State.NOT_OBSERVED)
JUDGED = (State.OK, State.WARN, State.CRITICAL)
SAYS_NOTHING = frozenset(name for name, detector in DETECTORS.items() if detector.ROLE in (Role.INPUT, Role.EARLY))
"""Detectors whose OK says nothing of the run, though they alarm like any other: that there is something to judge, and
that there is no early sign, is no health."""


SILENT_AFTER_S = 600.0
"""A job is never called silent sooner."""
SILENT_AFTER_STEPS = 20
"""Usual intervals between two summaries after which a slower job is called silent."""


class Worst(View):
    """The detector that is furthest past its limit, or whose incident fires."""

    detector: str
    state: State
    message: str = Field(description="What was seen, against what.")


class JobView(View):
    """One line about a job."""

    name: str
    created_at: float = Field(description="Unix seconds.")
    rows: int = Field(description="Rows in the ledger.")
    mode: Mode
    state: State = Field(
        description="The worst of the verdicts that could be reached; `ok` says nothing of the others. Instead of `ok` "
        "it is `not_observed` while the job is silent, and `inconclusive` while its summaries go to quarantine."
    )
    judged: int = Field(description="Detectors that could judge the newest step.")
    detectors: int = Field(description="Detectors that there are.")
    worst: Worst | None = Field(
        description="Of what alarms at the newest step and the incidents that fire; null where there is neither."
    )
    firing: int = Field(description="Incidents that are firing.")
    proposals: int = Field(description="Changes that wait for a person, or stand as advice.")
    attempt: int | None = Field(description="The newest attempt; null before the first summary.")
    step: int | None = Field(description="The newest step of that attempt.")
    last_received_at: float | None = Field(description="Unix seconds; when the summary of `step` came, of rank 0.")
    age: float | None = Field(description="Seconds since then.")
    silent: bool = Field(
        description="Nothing that can be judged has come for 10 minutes and for 20 of its usual intervals."
    )
    quarantined: int = Field(description="Summaries refused because another one held their key.")
    reward: list[float | None] = Field(
        description="Mean reward of the latest steps of this attempt, at most 20 unless the settings say otherwise, "
        "oldest first; null where it was not observed or not finite."
    )
    archived_at: float | None = Field(description="Unix seconds; null while the job is not archived.")
    log: LogView | None = Field(
        description="Where the job is read from its log, and so can only be observed; else null."
    )
    problem: str | None = Field(description="Why nothing at all can be said of the job, and what to do; else null.")


class HealthView(View):
    """Everything that is the matter with a job, or nothing."""

    job: JobView
    verdicts: list[Verdict]
    incidents: list[Incident] = Field(description="Those that are pending or firing.")
    proposals: list[ProposalView] = Field(description="Changes that wait for a person, or stand as advice.")
    controls: ControlsView
    dropped: int = Field(description="Summaries that the trainer's process has lost so far.")


def overall(state: RunState) -> State:
    """The worst verdict of the newest step, or that of an incident that is still firing, whichever is worse.

    A detector that could not judge takes nothing away from one that could (a run that answers everything right has too
    few wrong answers to compare), but it is no OK either: `JobView.judged` says how many could. Where only those of
    `SAYS_NOTHING` could, nobody knows.
    """
    found = {
        verdict.state
        for verdict in state.verdicts.values()
        if verdict.state is not State.OK or verdict.detector not in SAYS_NOTHING
    }
    found |= {incident.severity for incident in state.incidents.values() if incident.phase is Phase.FIRING}
    return next((candidate for candidate in WORST_FIRST if candidate in found), State.NOT_OBSERVED)


def shown_state(state: RunState, line: JobLine, *, now: float, patience: float) -> State:
    """`overall`, but that OK holds only while summaries come, and one trainer alone sends them.

    `patience` is what `silent_after` says of the job.
    """
    found = overall(state)
    if found is not State.OK:  # what was wrong when it fell silent is no better for that
        return found
    if line.quarantined_at is not None and now - line.quarantined_at <= patience:
        return State.INCONCLUSIVE
    return State.NOT_OBSERVED if _silent(line, now=now, patience=patience) else found


def job_view(service: Service, name: str) -> JobView:
    """One line about a job, one that cannot be read included. Raises `UnknownJobError`."""
    return job_views(service, [overview(service).line(name)])[0]


def job_views(service: Service, lines: Iterable[JobLine]) -> list[JobView]:
    """One line about each job, those that cannot be read included; what is in memory is not read again."""
    views = []
    for line in lines:
        name, problem = line.job.name, None
        state = service.current(name, line.job.rows)
        if state is None:
            try:
                state = service.state(name)
            except UnreadableJobError as error:
                state, problem = RunState.initial(name), str(error)
        views.append(_view(line, state, service.clock(), problem))
    return views


def health_view(service: Service, name: str) -> HealthView:
    """The health of a job. Raises `UnknownJobError`, `UnreadableJobError`."""
    state = service.state(name)
    return HealthView(
        job=_view(overview(service).line(name), state, service.clock()),
        verdicts=list(state.verdicts.values()),
        incidents=[incident for incident in state.incidents.values() if incident.phase is not Phase.RESOLVED],
        proposals=proposal_views(state),
        controls=controls_view(state),
        dropped=state.order.dropped,
    )


def overview(service: Service) -> Overview:
    """What is stored of many jobs, with as many arrivals as it takes to call one silent."""
    return Overview(service.database, arrivals=SILENT_AFTER_STEPS + 1)


def silent_after(arrivals: Sequence[float]) -> float:
    """Seconds without a summary after which a job is silent; when the newest ones came, the newest first."""
    intervals = [newer - older for newer, older in pairwise(arrivals)]
    return max(SILENT_AFTER_S, SILENT_AFTER_STEPS * median(intervals)) if intervals else SILENT_AFTER_S


def _silent(line: JobLine, *, now: float, patience: float) -> bool:
    return line.job.last_received_at is not None and now - line.job.last_received_at > patience


def _view(line: JobLine, state: RunState, now: float, problem: str | None = None) -> JobView:
    judged = state.last_step >= 0
    patience = silent_after(line.arrivals)
    rewards = state.history.get("reward_mean", ())
    return JobView(
        name=line.job.name,
        created_at=line.job.created_at,
        rows=line.job.rows,
        mode=state.mode,
        state=shown_state(state, line, now=now, patience=patience),
        judged=sum(verdict.state in JUDGED for verdict in state.verdicts.values()),
        detectors=len(DETECTORS),
        worst=worst_of(state),
        firing=sum(incident.phase is Phase.FIRING for incident in state.incidents.values()),
        proposals=len(state.proposals),
        attempt=state.attempt if judged else None,
        step=state.last_step if judged else None,
        last_received_at=line.job.last_received_at,
        age=None if line.job.last_received_at is None else max(now - line.job.last_received_at, 0.0),
        silent=_silent(line, now=now, patience=patience),
        quarantined=line.quarantined,
        reward=[value if value is not None and isfinite(value) else None for value in rewards],
        archived_at=line.job.archived_at,
        log=log_view(state),
        problem=problem,
    )


def worst_of(state: RunState) -> Worst | None:
    """What `overall` alarms for: a newest verdict, or an incident that fires though its detector alarms no more."""
    alarming = sorted((one for one in state.verdicts.values() if one.state.alarming), key=lambda one: -one.score)
    firing = [one for one in state.incidents.values() if one.phase is Phase.FIRING]
    found = [
        *(Worst(detector=one.detector, state=one.state, message=one.message) for one in alarming),
        *(Worst(detector=one.detector, state=one.severity, message=one.message) for one in firing),
    ]
    return max(found, key=lambda one: one.state is State.CRITICAL, default=None)  # the first of equals
