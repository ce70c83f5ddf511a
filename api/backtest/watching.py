"""What fired in a run."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.agent.advance import Outcome
from trimtab.agent.state import EventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An incident began to fire, at WARN or above."""

    at: int
    """Summaries that were judged before it in the run: it grows even where the steps go back."""
    what: str
    """The incident's fingerprint without the job: the detector."""
    severity: str


def fired(outcome: Outcome) -> list[Alert]:
    """What began to fire with one summary."""
    at = outcome.state.tick - 1
    details = [event.detail for event in outcome.events if event.kind is EventKind.INCIDENT_FIRING]
    return [Alert(at=at, what=one["fingerprint"].partition("/")[2], severity=one["severity"]) for one in details]
