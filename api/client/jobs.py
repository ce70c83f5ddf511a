"""Jobs, and what they report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trimtab.agent.state import Mode, State
from trimtab.api.baselines_view import BaselinesView
from trimtab.api.client.base import Caller, job_path
from trimtab.api.health_view import HealthView, JobView
from trimtab.api.replay_worker import Replayed
from trimtab.api.routes.jobs import REGISTERED, Attempts, Jobs
from trimtab.api.routes.replay import TIMEOUT_S, ReplayView
from trimtab.api.routes.settings import SettingsView
from trimtab.api.routes.summaries import PATH, IngestAnswer
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import SUMMARY
from trimtab.storage.overview import Attempt


class JobCalls(Caller):
    """Jobs, and what they report."""

    def jobs(
        self,
        *,
        states: Sequence[State | str] = (),
        modes: Sequence[Mode | str] = (),
        archived: bool = False,
        query: str = "",
    ) -> list[JobView]:
        """Jobs, newest first, page by page; only those in these states and modes, whose name contains `query`."""
        asked = {"state": list(states), "mode": list(modes), "archived": archived, "query": query or None}
        found: list[JobView] = []
        for page in self._pages(Jobs, "/v1/jobs", asked):
            found += page.jobs
        return found

    def job(self, job: str) -> JobView:
        """One line about a job."""
        return self._ask(JobView, "GET", job_path(job))

    def register(
        self,
        job: str,
        *,
        config: Mapping[str, Any] | None = None,
        mode: Mode | str | None = None,
        reason: str = REGISTERED,
        issuer: str | None = None,
    ) -> JobView:
        """Make sure that a job exists, with these settings (nested, as JSON) and in this mode."""
        body = {"config": config, "mode": mode, "reason": reason, "issuer": issuer}
        return self._ask(JobView, "PUT", job_path(job), body)

    def settings(self, job: str) -> SettingsView:
        """What a job's agent was set up with."""
        return self._ask(SettingsView, "GET", job_path(job, "settings"))

    def archive(self, job: str, *, reason: str, issuer: str | None = None) -> JobView:
        """Put a job away, until it reports again."""
        return self._ask(JobView, "POST", job_path(job, "archive"), {"reason": reason, "issuer": issuer})

    def unarchive(self, job: str, *, reason: str, issuer: str | None = None) -> JobView:
        """Watch an archived job again."""
        return self._ask(JobView, "POST", job_path(job, "unarchive"), {"reason": reason, "issuer": issuer})

    def attempts(self, job: str) -> Iterator[Attempt]:
        """Attempts of a job, the newest first, page by page."""
        for page in self._pages(Attempts, job_path(job, "attempts"), {}):
            yield from page.attempts

    def replay(self, job: str, settings: Mapping[str, Any] | None = None) -> Replayed:
        """What would have come of a job under other settings, nested or by dotted path."""
        body = {"settings": dict(settings or {})}
        return self._ask(ReplayView, "POST", job_path(job, "replay"), body, timeout=TIMEOUT_S + 10).replayed

    def baselines(self, job: str) -> BaselinesView:
        """What is usual in a job, and where its detectors would alarm."""
        return self._ask(BaselinesView, "GET", job_path(job, "baselines"))

    def ingest(self, summary: StepSummary) -> IngestAnswer:
        """Report one step."""
        return self._ask(IngestAnswer, "POST", PATH, SUMMARY.encode(summary), repeatable=True)

    def health(self, job: str) -> HealthView:
        """Verdicts, open incidents, proposals and controls of a job."""
        return self._ask(HealthView, "GET", job_path(job, "health"))
