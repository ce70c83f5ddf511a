"""Jobs, and what they report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.agent.state import Mode
from trimtab.api.client.base import Caller, job_path
from trimtab.api.health_view import HealthView, JobView
from trimtab.api.routes.jobs import Jobs
from trimtab.api.routes.summaries import PATH, IngestAnswer
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import SUMMARY


class JobCalls(Caller):
    """Jobs, and what they report."""

    def jobs(self) -> list[JobView]:
        """Every job, newest first."""
        return self._ask(Jobs, "GET", "/v1/jobs").jobs

    def job(self, job: str) -> JobView:
        """One line about a job."""
        return self._ask(JobView, "GET", job_path(job))

    def register(self, job: str, *, config: Mapping[str, Any] | None = None, mode: Mode | str | None = None) -> JobView:
        """Make sure that a job exists, with these settings (nested, as JSON) and in this mode."""
        return self._ask(JobView, "PUT", job_path(job), {"config": config, "mode": mode})

    def ingest(self, summary: StepSummary) -> IngestAnswer:
        """Report one step."""
        return self._ask(IngestAnswer, "POST", PATH, SUMMARY.encode(summary), repeatable=True)

    def health(self, job: str) -> HealthView:
        """Verdicts, open incidents, proposals and controls of a job."""
        return self._ask(HealthView, "GET", job_path(job, "health"))
