"""Incidents, and what nobody wants to be told of."""

from __future__ import annotations

from trimtab.agent.state import Incident, Silence
from trimtab.api.client.base import Caller, job_path
from trimtab.api.routes.incidents import Acknowledged, Incidents
from trimtab.api.routes.silences import Silences


class IncidentCalls(Caller):
    """Incidents and silences."""

    def incidents(self, job: str) -> list[Incident]:
        """Incidents of a job, newest first, resolved ones included."""
        return self._ask(Incidents, "GET", job_path(job, "incidents")).incidents

    def acknowledge(self, job: str, detector: str, *, reason: str, issuer: str | None = None) -> Incident:
        """Look after the open incident of a detector."""
        body = {"reason": reason, "issuer": issuer}
        return self._ask(Acknowledged, "POST", job_path(job, "incidents", detector, "ack"), body).incident

    def silences(self, job: str) -> list[Silence]:
        """All silences that hold."""
        return self._ask(Silences, "GET", job_path(job, "silences")).silences

    def silence(
        self, job: str, detector: str, *, reason: str, steps: int | None = None, issuer: str | None = None
    ) -> list[Silence]:
        """Do not be told of a detector's incidents, for `steps` steps or until it is cancelled; all that hold then."""
        body = {"steps": steps, "reason": reason, "issuer": issuer}
        return self._ask(Silences, "PUT", job_path(job, "silences", detector), body, repeatable=False).silences

    def unsilence(self, job: str, detector: str, *, reason: str, issuer: str | None = None) -> list[Silence]:
        """Be told again; all silences that hold then."""
        body = {"reason": reason, "issuer": issuer}
        return self._ask(Silences, "DELETE", job_path(job, "silences", detector), body).silences
