"""What is exported of a job and can be added up over several."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trimtab.agent.run_state import RunState
from trimtab.agent.state import Phase, State
from trimtab.api.health_view import shown_state, silent_after
from trimtab.storage.overview import JobLine

SEVERITY = {State.OK: 0.0, State.WARN: 1.0, State.CRITICAL: 2.0}
SUPPRESSED = "suppressed"
"""Phase of an incident that fires and of which nobody is told: another one explains it, or a person silenced it."""


def severity(state: State) -> float:
    """0 to 2; NaN where nothing could be judged."""
    return SEVERITY.get(state, math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A job, or several as one."""

    reported_at: float
    """When its newest step came, Unix seconds; of several, that of the one that is most overdue."""
    patience: float
    """Seconds without a summary after which that one is silent."""
    severity: float
    """The worst."""
    incidents: Counter[tuple[str, str, str]]
    """Those that are open, by detector, severity and phase."""
    in_sync: bool
    locked: bool
    remedies: int
    proposals: int
    dropped: int
    quarantined: int

    @classmethod
    def of(cls, line: JobLine, state: RunState, *, now: float) -> Facts:
        """Those of one job."""
        patience = silent_after(line.arrivals)
        return cls(
            reported_at=line.job.last_received_at or 0.0,
            patience=patience,
            severity=severity(shown_state(state, line, now=now, patience=patience)),
            incidents=Counter(
                (incident.detector, incident.severity.value, _phase(incident.phase, told=incident.told))
                for incident in state.incidents.values()
                if incident.phase is not Phase.RESOLVED
            ),
            in_sync=state.in_sync,
            locked=bool(state.ladder.locked),
            remedies=len(state.ladder.rungs),
            proposals=len(state.proposals),
            dropped=state.order.dropped,
            quarantined=line.quarantined,
        )

    @classmethod
    def together(cls, several: Iterable[Facts], *, now: float) -> Facts:
        """Those of at least one job, as one."""
        jobs = list(several)
        overdue = max(jobs, key=lambda job: now - job.reported_at - job.patience)
        judged = [job.severity for job in jobs if not math.isnan(job.severity)]
        return cls(
            reported_at=overdue.reported_at,
            patience=overdue.patience,
            severity=max(judged, default=math.nan),
            incidents=sum((job.incidents for job in jobs), Counter()),
            in_sync=all(job.in_sync for job in jobs),
            locked=any(job.locked for job in jobs),
            remedies=sum(job.remedies for job in jobs),
            proposals=sum(job.proposals for job in jobs),
            dropped=sum(job.dropped for job in jobs),
            quarantined=sum(job.quarantined for job in jobs),
        )


def _phase(phase: Phase, *, told: bool) -> str:
    return SUPPRESSED if phase is Phase.FIRING and not told else phase.value
