"""Alerts as Prometheus and Alertmanager see them: labels that identify, annotations that explain."""

from __future__ import annotations

from trimtab.api.notify.text import clean, cut, measured
from trimtab.storage.alert import Alert, AlertKind, Severity

NAMES = {
    AlertKind.INCIDENT: "TrimtabIncident",
    AlertKind.PROPOSAL: "TrimtabProposal",
    AlertKind.LOCKOUT: "TrimtabLockout",
    AlertKind.CHANGE: "TrimtabChange",
}
TEXT = 2000


def labels(alert: Alert, severity: Severity | None = None) -> dict[str, str]:
    """What identifies the alert; with another severity, what it was before it worsened."""
    return {
        "alertname": NAMES[alert.kind],
        "job": alert.job,
        "kind": alert.kind.value,
        "name": clean(alert.name),
        "severity": (severity or alert.severity).value,
    }


def explanation(alert: Alert) -> dict[str, str]:
    """What explains it."""
    told = {"summary": cut(alert.summary, TEXT), "step": str(alert.step), "attempt": str(alert.attempt)}
    if alert.evidence:
        told["evidence"] = cut(measured(alert.evidence), TEXT)
    if alert.acknowledged_by is not None:
        told["acknowledged_by"] = cut(alert.acknowledged_by, 128)
    return told | {clean(title).replace(" ", "_"): cut(text, TEXT) for title, text in alert.notes.items()}
