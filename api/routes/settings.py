"""Settings: what a job's agent was set up with."""

from __future__ import annotations

from fastapi import APIRouter

from trimtab.agent.config import AgentConfig
from trimtab.api.restore import config_of
from trimtab.api.routes.common import JobName, ServiceOf
from trimtab.api.views import View

router = APIRouter(tags=["jobs"])


class SettingsView(View):
    """The settings of one job."""

    job: str
    config: AgentConfig


@router.get("/v1/jobs/{job}/settings", summary="What is a job's agent set up with?")
def get_settings(job: JobName, service: ServiceOf) -> SettingsView:
    """Limits, thresholds and remedies, every default filled in. They are given when the job is registered, and fixed by
    the first row of its ledger, since everything after it was judged by them; the mode may change at any time."""
    return SettingsView(job=job, config=config_of(job, service.store.job(job).config))
