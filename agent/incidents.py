"""From verdicts to incidents, in Alertmanager's terms: pending -> firing -> resolved.

- `for`: a CRITICAL verdict fires at once, a WARN after `for_steps` more alarming steps in a row; one that stops
  before is forgotten.
- `keep_firing_for`: a firing incident resolves after that many steps judged OK. A step that could not be judged
  (non-finite, too few tokens, not observed) neither alarms nor counts. Without such a hold a control flapped 11 times
  in 80 steps, with it 5 times.
- Inhibition: while broken inputs are firing and CRITICAL, nothing else opens an incident of its own. NaN log-probs
  explain a reward of 0.
- A fingerprint is job and detector, so a condition that comes back is the same incident, counted in `occurrences`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.state import Event, EventKind, Incident, Phase, State, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentSettings:
    """Hysteresis, in steps that were seen."""

    for_steps: int = 1
    """Further alarming steps in a row that a WARN needs before it fires."""
    keep_firing_for: int = 20
    """Steps judged OK before a firing incident resolves."""

    def __post_init__(self) -> None:
        require(0 <= self.for_steps <= MOST, "incidents.for_steps", self.for_steps, f"0 to {MOST}")
        require(1 <= self.keep_firing_for <= MOST, "incidents.keep_firing_for", self.keep_firing_for, f"1 to {MOST}")


def fingerprint(job: str, detector: str) -> str:
    """The identity of an incident: stable over the run, free of values and steps."""
    return f"{job}/{detector}"


def is_open(incident: Incident | None) -> bool:
    """True for an incident that is pending or firing."""
    return incident is not None and incident.phase is not Phase.RESOLVED


def played_by(role: Role) -> tuple[str, ...]:
    """The detectors that play a role, in the order of `DETECTORS`."""
    return tuple(name for name, detector in DETECTORS.items() if detector.ROLE is role)


def firing(incidents: Mapping[str, Incident], role: Role) -> list[Incident]:
    """The firing incidents of the detectors that play a role, in the order of `DETECTORS`."""
    found = {incident.detector: incident for incident in incidents.values() if incident.phase is Phase.FIRING}
    return [found[name] for name in played_by(role) if name in found]


def broken(incidents: Mapping[str, Incident]) -> list[Incident]:
    """The incidents that say that the inputs are broken."""
    return [incident for incident in firing(incidents, Role.INPUT) if incident.severity is State.CRITICAL]


def advanced(
    incidents: Mapping[str, Incident],
    verdicts: Mapping[str, Verdict],
    settings: IncidentSettings,
    *,
    job: str,
    attempt: int,
    step: int,
) -> tuple[dict[str, Incident], tuple[Event, ...]]:
    """Incidents by fingerprint after one step's verdicts (by detector), and what changed."""
    now = dict(incidents)
    events: list[Event] = []
    inputs = played_by(Role.INPUT)
    for name in sorted(verdicts, key=lambda name: name not in inputs):
        key = fingerprint(job, name)
        before = now.get(key)
        inhibited = name not in inputs and broken(now)
        if verdicts[name].state.alarming and inhibited and not is_open(before):
            continue
        after = _next(before, verdicts[name], settings, key, step)
        if after is None:
            now.pop(key, None)
            continue
        now[key] = after
        phase_before = before.phase if before is not None else None
        forgotten = phase_before is Phase.PENDING and after.phase is Phase.RESOLVED
        if after.phase is not phase_before and not forgotten:
            events.append(_event(after, attempt, step))
    return now, tuple(events)


def _next(
    before: Incident | None, verdict: Verdict, settings: IncidentSettings, key: str, step: int
) -> Incident | None:
    if verdict.state.alarming:
        return _alarmed(before, verdict, settings, key, step)
    if before is None or before.phase is Phase.RESOLVED:
        return before
    if before.phase is Phase.PENDING:
        return _forgotten(before)
    clean = before.clean + (verdict.state is State.OK)
    if clean < settings.keep_firing_for:
        return replace(before, alarms=0, clean=clean)
    message = f"no alarm in {clean} judged steps; the last, at step {before.last_alarm_step}: {before.message}"
    return replace(before, phase=Phase.RESOLVED, alarms=0, clean=clean, resolved_step=step, message=message)


def _forgotten(pending: Incident) -> Incident | None:
    """A pending incident that stopped in time never was; the firings before it remain counted."""
    if pending.occurrences == 1:
        return None
    return replace(pending, phase=Phase.RESOLVED, alarms=0, occurrences=pending.occurrences - 1)


def _alarmed(before: Incident | None, verdict: Verdict, settings: IncidentSettings, key: str, step: int) -> Incident:
    if before is None or before.phase is Phase.RESOLVED:
        current = Incident(
            fingerprint=key,
            detector=verdict.detector,
            severity=verdict.state,
            phase=Phase.PENDING,
            since_step=step,
            last_alarm_step=step,
            occurrences=1 if before is None else before.occurrences + 1,
        )
    else:
        worst = State.CRITICAL if State.CRITICAL in (before.severity, verdict.state) else State.WARN
        current = replace(before, severity=worst, last_alarm_step=step, alarms=before.alarms + 1, clean=0)
    current = replace(current, message=verdict.message, evidence=verdict.evidence)
    ripe = verdict.state is State.CRITICAL or current.alarms > settings.for_steps
    if current.phase is Phase.PENDING and ripe:
        return replace(current, phase=Phase.FIRING, firing_step=step)
    return current


def _event(incident: Incident, attempt: int, step: int) -> Event:
    kinds = {
        Phase.PENDING: EventKind.INCIDENT_PENDING,
        Phase.FIRING: EventKind.INCIDENT_FIRING,
        Phase.RESOLVED: EventKind.INCIDENT_RESOLVED,
    }
    return Event(
        kind=kinds[incident.phase],
        attempt=attempt,
        step=step,
        detail={
            "fingerprint": incident.fingerprint,
            "detector": incident.detector,
            "severity": incident.severity.value,
            "since_step": incident.since_step,
            "occurrences": incident.occurrences,
            "evidence": dict(incident.evidence),
        },
        message=incident.message,
    )
