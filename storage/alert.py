"""Alerts: what people are told of a job, in Alertmanager's terms.

An alert is firing until it is resolved. Its fingerprint is a hash of the job and of what is wrong, never of a value or
a step, so what comes back is the same alert. `starts_at` stays as it is from firing to resolved. A notice is an alert
that happens rather than lasts: it is told once, never repeated, and never resolved.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How bad it is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for the mildest."""
        return list(Severity).index(self)


class AlertKind(StrEnum):
    """What an alert is about."""

    INCIDENT = "incident"
    """Something is wrong with the run."""
    PROPOSAL = "proposal"
    """A change waits for a person's answer."""
    LOCKOUT = "lockout"
    """The agent acts no more until a person sets the mode."""
    CHANGE = "change"
    """Controls were changed, or a change was judged: a notice."""

    @property
    def lasts(self) -> bool:
        """Whether it is firing until it is resolved; else it is a notice."""
        return self is not AlertKind.CHANGE


class AlertPhase(StrEnum):
    """Where an alert stands; a notice stays firing."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert as it stands."""

    job: str
    fingerprint: str
    """32 hexadecimal digits."""
    kind: AlertKind
    name: str
    """The detector of an incident, the remedy of a proposal or change."""
    severity: Severity
    """The worst since it started."""
    phase: AlertPhase
    summary: str
    """One line for a person. Like every text in an alert it may hold what users wrote."""
    attempt: int
    step: int
    """Where it was last heard of."""
    starts_at: float
    """Unix seconds, like every time here."""
    ends_at: float | None = None
    """When it was resolved."""
    worsened_at: float | None = None
    """When its severity last grew."""
    worsened_from: Severity | None = None
    """What it was before that."""
    silenced: bool = False
    """A person does not want to be told of it."""
    acknowledged_by: str | None = None
    """Who looks after it; nobody is reminded of it as long as it does not worsen."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """The numbers that it was judged by; those that are not finite are strings."""
    notes: dict[str, str] = field(default_factory=dict)
    """What else a person needs, by title: likely cause, proposed remedy, cost, who did it."""


def fingerprint(job: str, kind: AlertKind, identity: str) -> str:
    """The identity of an alert: 32 hexadecimal digits. An incident's `identity` is its detector."""
    return hashlib.sha256(json.dumps([job, kind.value, identity]).encode()).hexdigest()[:32]
