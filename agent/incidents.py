"""From verdicts to incidents, in Alertmanager's terms: pending -> firing -> resolved.

- `for`: a CRITICAL verdict fires at once, a WARN after `for_steps` more alarming steps in a row; one that stops
  before is forgotten.
- `keep_firing_for`: a firing incident resolves after that many steps judged OK. A step that could not be judged
  (non-finite, too few tokens, not observed) neither alarms nor counts. Without such a hold a control flapped 11 times
  in 80 steps, with it 5 times.
- `group_interval`: broken inputs, whose signs are single steps, do not resolve sooner than that after they began.
  What comes back within it goes on as the same incident. One that began `flap_count` times within `flap_steps` is
  flapping: it is told once, with its rate, and resolves after `group_interval` steps judged OK.
- Inhibition and grouping: of incidents with one cause, one is told (`trimtab.agent.grouping`).
- Silences: what a person does not want to be told of is there all the same, and acted on.
- Grace: what alarms right after a resume is a transient until the grace is over (`trimtab.agent.resume`).
- Acknowledgement: who looks after an incident is on record until it gets worse, or begins again.
- A fingerprint is job and detector, so a condition that comes back is the same incident, counted in `occurrences`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache

from trimtab.agent.advice import advised
from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.grouping import order, root_of
from trimtab.agent.state import Event, EventKind, Incident, Phase, State, Verdict
from trimtab.agent.values import quick, replace
from trimtab.hooks.controls import Controls

NEVER_PASSING = ("nonfinite", "tokens", "vanished")
"""Detectors whose alarms are no transient, at a resume either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentSettings:
    """Hysteresis, in steps that were seen."""

    for_steps: int = 1
    """Further alarming steps in a row that a WARN needs before it fires."""
    keep_firing_for: int = 20
    """Steps judged OK before a firing incident resolves."""
    group_interval: int = 50
    """Steps from its beginning before an incident of broken inputs resolves; and steps judged OK before one that comes
    and goes does."""
    flap_count: int = 2
    """Times that an incident begins within `flap_steps` from which it is flapping."""
    flap_steps: int = 100
    """Steps over which beginnings are counted."""
    grace: int = 10
    """Steps after a resume in which what alarms is a transient, and nothing is done by itself."""

    def __post_init__(self) -> None:
        require(0 <= self.for_steps <= MOST, "incidents.for_steps", self.for_steps, f"0 to {MOST}")
        for name in ("keep_firing_for", "group_interval"):
            require(1 <= getattr(self, name) <= MOST, f"incidents.{name}", getattr(self, name), f"1 to {MOST}")
        require(2 <= self.flap_count <= 1000, "incidents.flap_count", self.flap_count, "2 to 1000")
        require(1 <= self.flap_steps <= 1000, "incidents.flap_steps", self.flap_steps, "1 to 1000")
        require(0 <= self.grace <= MOST, "incidents.grace", self.grace, f"0 to {MOST}")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What incidents have to know of a step besides its verdicts."""

    job: str
    attempt: int
    step: int
    tick: int
    """Summaries judged in all attempts."""
    silenced: Collection[str] = ()
    """Fingerprints that a person silenced."""
    grace: bool = False
    """The step lies in the grace after a resume."""
    applied: Controls | None = field(default_factory=Controls)


def fingerprint(job: str, detector: str) -> str:
    """The identity of an incident: stable over the run, free of values and steps."""
    return f"{job}/{detector}"


def is_open(incident: Incident | None) -> bool:
    """True for an incident that is pending or firing."""
    return incident is not None and incident.phase is not Phase.RESOLVED


@cache
def played_by(role: Role) -> tuple[str, ...]:
    """The detectors that play a role, in the order of `DETECTORS`."""
    return tuple(name for name, detector in DETECTORS.items() if detector.ROLE is role)


def firing(incidents: Mapping[str, Incident], role: Role) -> list[Incident]:
    """The firing incidents of the detectors that play a role, in the order of `DETECTORS`, whether told or not."""
    found = {incident.detector: incident for incident in incidents.values() if incident.phase is Phase.FIRING}
    return [found[name] for name in played_by(role) if name in found] if found else []


def alarming(incidents: Mapping[str, Incident], role: Role) -> list[Incident]:
    """Those of the firing ones whose detector alarms now, and not only a little while ago."""
    return [incident for incident in firing(incidents, role) if incident.alarms]


def broken(incidents: Mapping[str, Incident], settings: IncidentSettings) -> list[Incident]:
    """The incidents that say that the inputs are broken, or were a short time ago."""
    return [
        incident
        for incident in firing(incidents, Role.INPUT)
        if incident.severity is State.CRITICAL and incident.clean < settings.keep_firing_for
    ]


def advanced(
    incidents: Mapping[str, Incident], verdicts: Mapping[str, Verdict], settings: IncidentSettings, now: Moment
) -> tuple[dict[str, Incident], tuple[Event, ...]]:
    """Incidents by fingerprint after one step's verdicts (by detector), and what changed."""
    all_of_them = dict(incidents)
    events: list[Event] = []
    for verdict in sorted(verdicts.values(), key=order):
        key, alarms = fingerprint(now.job, verdict.detector), verdict.state.alarming
        before = all_of_them.get(key)
        if before is None and not alarms:
            continue
        after = _next(before, verdict, settings, key, now)
        if after is None:
            del all_of_them[key]
            continue
        if alarms:
            root = None if before is not None and before.told else root_of(after, all_of_them, settings.keep_firing_for)
            after = replace(after, cause=None if root is None else root.fingerprint)
            after = advised(after, verdicts, now.applied)
        after = replace(after, silenced=key in now.silenced or (after.silenced and not alarms))
        all_of_them[key] = after
        kind = _change(before, after, now)
        if kind is not None:
            events.append(_event(kind, after, now))
    return all_of_them, tuple(events)


def _next(
    before: Incident | None, verdict: Verdict, settings: IncidentSettings, key: str, now: Moment
) -> Incident | None:
    if verdict.state.alarming:
        return _alarmed(before, verdict, settings, key, now)
    if before is None or before.phase is Phase.RESOLVED:
        return before
    if before.phase is Phase.PENDING:
        return _forgotten(before)
    clean = before.clean + (verdict.state is State.OK)
    enough = settings.keep_firing_for if before.flap_rate is None else settings.group_interval
    held = DETECTORS[verdict.detector].ROLE is Role.INPUT and now.tick - before.onsets[-1] < settings.group_interval
    if held or clean < enough:
        return replace(before, alarms=0, clean=clean)
    message = f"no alarm in {clean} judged steps; the last, at step {before.last_alarm_step}: {before.message}"
    return replace(before, phase=Phase.RESOLVED, alarms=0, clean=clean, resolved_step=now.step, message=message)


def _forgotten(pending: Incident) -> Incident | None:
    """A pending incident that stopped in time never was; the firings before it remain counted."""
    if pending.occurrences == 1:
        return None
    occurrences, onsets = pending.occurrences - 1, pending.onsets[:-1]
    return replace(pending, phase=Phase.RESOLVED, alarms=0, occurrences=occurrences, onsets=onsets)


def _alarmed(before: Incident | None, verdict: Verdict, settings: IncidentSettings, key: str, now: Moment) -> Incident:
    if before is None or before.phase is Phase.RESOLVED:
        base, alarms, begins = _pending(verdict, key, now), 1, True
    else:
        base, alarms, begins = before, before.alarms + 1, before.clean >= settings.keep_firing_for
    worst = State.CRITICAL if State.CRITICAL in (base.severity, verdict.state) else State.WARN
    onsets = () if before is None else before.onsets
    if begins:
        onsets = (*(tick for tick in onsets if tick > now.tick - settings.flap_steps), now.tick)
    flaps = len(onsets) >= settings.flap_count
    message = verdict.message
    if flaps:
        message = f"flapping, {len(onsets)} times within {settings.flap_steps} steps: {message}"
    phase, firing_step = base.phase, base.firing_step
    # What is broken in one step was never going to last: a step with a NaN in it is told in that step.
    never_passing = verdict.detector in NEVER_PASSING
    ripe = never_passing or verdict.state is State.CRITICAL or alarms > settings.for_steps
    if phase is Phase.PENDING and now.grace and not never_passing:
        message = f"resume transient: {message}"
    elif phase is Phase.PENDING and ripe:
        phase, firing_step = Phase.FIRING, now.step
    return replace(
        base,
        severity=worst,
        phase=phase,
        firing_step=firing_step,
        last_alarm_step=now.step,
        alarms=alarms,
        clean=0,
        occurrences=(0 if before is None else before.occurrences) + begins,
        onsets=onsets,
        flap_rate=len(onsets) / settings.flap_steps if flaps else None,
        acknowledged=None if begins or worst is not base.severity else base.acknowledged,
        message=message,
        evidence=verdict.evidence,
        rule=verdict.rule,
    )


def _pending(verdict: Verdict, key: str, now: Moment) -> Incident:
    """One that begins now."""
    return Incident(
        fingerprint=key,
        detector=verdict.detector,
        severity=verdict.state,
        phase=Phase.PENDING,
        since_step=now.step,
        last_alarm_step=now.step,
    )


def _change(before: Incident | None, after: Incident, now: Moment) -> EventKind | None:
    """What the audit trail is told of an incident's step; None where nothing changed."""
    was = None if before is None else before.phase
    if after.told and not (before is not None and before.told):
        return EventKind.INCIDENT_FIRING
    if after.phase is Phase.FIRING:
        if was is not Phase.FIRING:
            return EventKind.INCIDENT_INHIBITED
        came_back = before is not None and after.occurrences > before.occurrences
        return EventKind.INCIDENT_FLAPPING if came_back and after.told else None
    if after.phase is was or (after.phase is Phase.RESOLVED and was is Phase.PENDING):
        return None
    if after.phase is Phase.RESOLVED:
        return EventKind.INCIDENT_RESOLVED
    if after.cause is not None or after.silenced:
        return None
    return EventKind.RESUME_TRANSIENT if now.grace else EventKind.INCIDENT_PENDING


def _event(kind: EventKind, incident: Incident, now: Moment) -> Event:
    return Event(
        kind=kind,
        attempt=now.attempt,
        step=now.step,
        detail={
            "fingerprint": incident.fingerprint,
            "detector": incident.detector,
            "severity": incident.severity.value,
            "since_step": incident.since_step,
            "occurrences": incident.occurrences,
            "flap_rate": incident.flap_rate,
            "cause": incident.cause,
            "silenced": incident.silenced,
            "evidence": dict(incident.evidence),
            "likely_cause": incident.likely_cause,
            "proposed": incident.proposed,
            "cost": incident.cost,
        },
        message=incident.message,
    )
