"""Which events people are told of, and as what: one visible table from the audit trail to alerts.

Incidents are told as they fire, worsen and resolve, those that are explained by another or silenced are not; a proposal
while it waits for an answer; a lock-out while it holds; a remedy that was applied or taken back, what became of it, a
rollback, a kill and overrides that the trainer ignores, each once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trimtab.agent.state import Direction, EventKind, Mode, State
from trimtab.storage.alert import AlertKind, Severity
from trimtab.storage.values import NewEvent

SEVERITIES = {State.WARN.value: Severity.WARNING, State.CRITICAL.value: Severity.CRITICAL}
NOTES = {"likely_cause": "likely cause", "proposed": "proposed", "cost": "cost", "issuer": "by"}
"""Details that are told, by the title that they are told under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """It fires, or still does; one that was silenced is to be told again."""

    kind: AlertKind
    identity: str
    """What is wrong, apart from the job; see `trimtab.storage.alert.fingerprint`."""
    name: str
    severity: Severity
    summary: str
    evidence: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worsened:
    """If it fires, it is at least this bad now."""

    kind: AlertKind
    identity: str
    severity: Severity
    summary: str
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """If it fires, it does no more."""

    kind: AlertKind
    identity: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Muted:
    """If it fires, a person does not want to be told of it any more; or does again."""

    kind: AlertKind
    identity: str
    silenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """If it fires, somebody looks after it."""

    kind: AlertKind
    identity: str
    by: str


Change = Fired | Worsened | Resolved | Muted | Acknowledged


def change_of(job: str, event: NewEvent) -> Change | None:
    """What an event means for the alerts of its job; None where nobody is told of it."""
    found = _TOLD.get(event.kind)
    return None if found is None else found(job, event, json.loads(event.detail))


def _incident(_job: str, event: NewEvent, detail: dict[str, Any]) -> Fired:
    return Fired(
        kind=AlertKind.INCIDENT,
        identity=detail["detector"],
        name=detail["detector"],
        severity=SEVERITIES[detail["severity"]],
        summary=event.message,
        evidence=detail["evidence"],
        notes=_notes(detail),
    )


def _judged(_job: str, event: NewEvent, detail: dict[str, Any]) -> Worsened | None:
    """An incident is as bad as its detector's worst verdict; the trail has no word of its own for that."""
    if detail["after"] != State.CRITICAL:
        return None
    return Worsened(
        kind=AlertKind.INCIDENT,
        identity=detail["detector"],
        severity=Severity.CRITICAL,
        summary=event.message,
        evidence=detail["evidence"],
    )


def _over(_job: str, event: NewEvent, detail: dict[str, Any]) -> Resolved:
    return Resolved(kind=AlertKind.INCIDENT, identity=detail["detector"], summary=event.message)


def _silenced(job: str, _event: NewEvent, detail: dict[str, Any]) -> Muted:
    return Muted(kind=AlertKind.INCIDENT, identity=detail["fingerprint"].removeprefix(f"{job}/"), silenced=True)


def _unsilenced(job: str, _event: NewEvent, detail: dict[str, Any]) -> Muted:
    return Muted(kind=AlertKind.INCIDENT, identity=detail["fingerprint"].removeprefix(f"{job}/"), silenced=False)


def _acknowledged(job: str, _event: NewEvent, detail: dict[str, Any]) -> Acknowledged:
    identity = detail["fingerprint"].removeprefix(f"{job}/")
    return Acknowledged(kind=AlertKind.INCIDENT, identity=identity, by=detail["issuer"])


def _proposed(_job: str, event: NewEvent, detail: dict[str, Any]) -> Fired | None:
    """Only in mode approve does anything wait for a person."""
    if detail["mode"] != Mode.APPROVE:
        return None
    number, what = detail["proposal"], "take back" if detail["direction"] == Direction.RELAX else "apply"
    return Fired(
        kind=AlertKind.PROPOSAL,
        identity=str(number),
        name=detail["remedy"],
        severity=Severity.WARNING,
        summary=f"proposal {number} waits for an answer: {what} {event.message}",
        notes={"overrides": json.dumps(detail["overrides"])},
    )


def _answered(told: str) -> Callable[[str, NewEvent, dict[str, Any]], Resolved]:
    def over(_job: str, event: NewEvent, detail: dict[str, Any]) -> Resolved:
        who = f" by {detail['issuer']}" if detail.get("issuer") else ""
        summary = f"proposal {detail['proposal']} was {told}{who}: {event.message}"
        return Resolved(kind=AlertKind.PROPOSAL, identity=str(detail["proposal"]), summary=summary)

    return over


def _locked(_job: str, event: NewEvent, _detail: dict[str, Any]) -> Fired:
    return Fired(kind=AlertKind.LOCKOUT, identity="", name="lockout", severity=Severity.WARNING, summary=event.message)


def _unlocked(_job: str, event: NewEvent, detail: dict[str, Any]) -> Resolved:
    summary = f"the mode was set to {detail['after']} by {detail['issuer']}: {event.message}"
    return Resolved(kind=AlertKind.LOCKOUT, identity="", summary=summary)


def _changed(_job: str, event: NewEvent, detail: dict[str, Any]) -> Fired | None:
    """Remedies that are applied or taken back; what a person sets is no news to people."""
    if "direction" not in detail:
        return None
    what = "taken back" if detail["direction"] == Direction.RELAX else "applied"
    summary = f"{what}: {event.message}"
    return _notice(f"changed {detail['generation']}", detail["remedy"], Severity.INFO, summary, detail)


def _harmless(_job: str, event: NewEvent, detail: dict[str, Any]) -> Fired | None:
    if not detail["remedy"]:
        return None
    return _notice(f"judged {detail['generation']}", detail["remedy"], Severity.INFO, event.message, detail)


def _harmful(_job: str, event: NewEvent, detail: dict[str, Any]) -> Fired:
    name = detail["remedy"] or "controls"
    return _notice(f"judged {detail['generation']}", name, Severity.WARNING, event.message, detail)


def _rolled_back(_job: str, event: NewEvent, detail: dict[str, Any]) -> Fired:
    """Takes the place of the judgement that it follows from, which says the same."""
    name, summary = detail.get("remedy", "controls"), f"rolled back: {event.message}"
    return _notice(f"judged {detail['undone']}", name, Severity.WARNING, summary, detail)


def _killed(_job: str, event: NewEvent, detail: dict[str, Any]) -> Fired:
    summary = f"{detail['issuer']} used the kill switch: {event.message}"
    return _notice(f"killed at {event.attempt}/{event.step}", "kill", Severity.WARNING, summary, detail)


def _ignored(_job: str, event: NewEvent, detail: dict[str, Any]) -> Fired:
    return _notice(f"ignored {detail['generation']}", "controls", Severity.WARNING, event.message, {})


def _notice(identity: str, name: str, severity: Severity, summary: str, detail: dict[str, Any]) -> Fired:
    return Fired(
        kind=AlertKind.CHANGE,
        identity=identity,
        name=name,
        severity=severity,
        summary=summary,
        evidence=detail.get("evidence", {}),
        notes=_notes(detail),
    )


def _notes(detail: dict[str, Any]) -> dict[str, str]:
    return {title: str(detail[name]) for name, title in NOTES.items() if detail.get(name)}


_TOLD: dict[str, Callable[[str, NewEvent, dict[str, Any]], Change | None]] = {
    EventKind.INCIDENT_FIRING: _incident,
    EventKind.INCIDENT_FLAPPING: _incident,
    EventKind.VERDICT_CHANGED: _judged,
    EventKind.INCIDENT_RESOLVED: _over,
    EventKind.SILENCED: _silenced,
    EventKind.UNSILENCED: _unsilenced,
    EventKind.ACKNOWLEDGED: _acknowledged,
    EventKind.PROPOSED: _proposed,
    EventKind.APPROVED: _answered("approved"),
    EventKind.REJECTED: _answered("rejected"),
    EventKind.WITHDRAWN: _answered("withdrawn"),
    EventKind.LOCKED_OUT: _locked,
    EventKind.RESTORED: _locked,
    EventKind.MODE_CHANGED: _unlocked,
    EventKind.CONTROLS_CHANGED: _changed,
    EventKind.CHANGE_UNHARMFUL: _harmless,
    EventKind.CHANGE_HARMFUL: _harmful,
    EventKind.ROLLED_BACK: _rolled_back,
    EventKind.KILLED: _killed,
    EventKind.CONTROLS_IGNORED: _ignored,
}
