"""A job's health in one answer."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from pydantic import Field

from trimtab.agent.detector import Role
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Incident, Mode, Phase, Proposal, State, Verdict
from trimtab.api.controls_view import ControlsView, controls_view
from trimtab.api.restore import UnreadableJobError
from trimtab.api.service import Service
from trimtab.api.views import View

WORST_FIRST = (State.CRITICAL, State.WARN, State.OK, State.INCONCLUSIVE, State.NOT_OBSERVED)
JUDGED = (State.OK, State.WARN, State.CRITICAL)
SAYS_NOTHING = frozenset(name for name, detector in DETECTORS.items() if detector.ROLE in (Role.INPUT, Role.EARLY))
"""Detectors whose OK says nothing of the run, though they alarm like any other: that there is something to judge, and
that there is no early sign, is no health."""


SILENT_AFTER_S = 600.0
"""A job is never called silent sooner."""
SILENT_AFTER_STEPS = 20
"""Usual intervals between two summaries after which a slower job is called silent."""


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
    firing: int = Field(description="Incidents that are firing.")
    attempt: int | None = Field(description="The newest attempt; null before the first summary.")
    step: int | None = Field(description="The newest step of that attempt.")
    last_received_at: float | None = Field(description="Unix seconds; when the summary of `step` came, of rank 0.")
    age: float | None = Field(description="Seconds since then.")
    silent: bool = Field(
        description="Nothing that can be judged has come for 10 minutes and for 20 of its usual intervals."
    )
    quarantined: int = Field(description="Summaries refused because another one held their key.")
    problem: str | None = Field(description="Why nothing at all can be said of the job, and what to do; else null.")


class HealthView(View):
    """Everything that is the matter with a job, or nothing."""

    job: JobView
    verdicts: list[Verdict]
    incidents: list[Incident] = Field(description="Those that are pending or firing.")
    proposals: list[Proposal] = Field(description="Changes that wait for a person, or stand as advice.")
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


def shown_state(state: RunState, *, silent: bool, contested: bool) -> State:
    """`overall`, but that OK holds only while summaries come, and one trainer alone sends them."""
    found = overall(state)
    if found is not State.OK:  # what was wrong when it fell silent is no better for that
        return found
    return State.INCONCLUSIVE if contested else State.NOT_OBSERVED if silent else found


def job_view(service: Service, name: str) -> JobView:
    """One line about a job, one that cannot be read included. Raises `UnknownJobError`."""
    try:
        return _line(service, name, service.state(name))
    except UnreadableJobError as error:
        return _line(service, name, RunState.initial(name), str(error))


def health_view(service: Service, name: str) -> HealthView:
    """The health of a job. Raises `UnknownJobError`, `UnreadableJobError`."""
    state = service.state(name)
    return HealthView(
        job=_line(service, name, state),
        verdicts=list(state.verdicts.values()),
        incidents=[incident for incident in state.incidents.values() if incident.phase is not Phase.RESOLVED],
        proposals=list(state.proposals),
        controls=controls_view(state),
        dropped=service.dropped(name),
    )


def silent_after(arrivals: list[float]) -> float:
    """Seconds without a summary after which a job is silent; when the newest ones came, the newest first."""
    intervals = [newer - older for newer, older in pairwise(arrivals)]
    return max(SILENT_AFTER_S, SILENT_AFTER_STEPS * median(intervals)) if intervals else SILENT_AFTER_S


def _line(service: Service, name: str, state: RunState, problem: str | None = None) -> JobView:
    store, now = service.store, service.clock()
    job = store.job(name)
    judged = state.last_step >= 0
    patience = silent_after(store.arrivals(name, SILENT_AFTER_STEPS + 1))
    age = None if job.last_received_at is None else max(now - job.last_received_at, 0.0)
    silent = age is not None and age > patience
    quarantined_at = store.quarantined_at(name)
    contested = quarantined_at is not None and now - quarantined_at <= patience
    return JobView(
        name=name,
        created_at=job.created_at,
        rows=job.rows,
        mode=state.mode,
        state=shown_state(state, silent=silent, contested=contested),
        judged=sum(verdict.state in JUDGED for verdict in state.verdicts.values()),
        detectors=len(DETECTORS),
        firing=sum(incident.phase is Phase.FIRING for incident in state.incidents.values()),
        attempt=state.attempt if judged else None,
        step=state.last_step if judged else None,
        last_received_at=job.last_received_at,
        age=age,
        silent=silent,
        quarantined=store.quarantined(name),
        problem=problem,
    )
