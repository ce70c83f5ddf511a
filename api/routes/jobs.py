"""Jobs: who reports here, and under which settings."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Body as BodyParameter
from pydantic import Field

from trimtab.agent.config import AgentConfig
from trimtab.agent.state import Mode
from trimtab.api.health_view import JobView, job_view
from trimtab.api.problem import CONFLICT, ERRORS
from trimtab.api.routes.common import OPERATOR, Issuer, JobName, Reason, ServiceOf
from trimtab.api.views import Body, View

router = APIRouter(tags=["jobs"])


class Registration(Body):
    """What a job is to be registered with; nothing of it is mandatory."""

    config: AgentConfig | None = Field(
        default=None,
        description="The agent's settings; what is missing has its default. Fixed by the first ledger row.",
    )
    mode: Mode | None = Field(default=None, description="Null leaves it as it is, or as the settings say.")
    issuer: Issuer = OPERATOR
    reason: Reason = "registered"


class Jobs(View):
    """Every job, newest first."""

    jobs: list[JobView]


@router.get("/v1/jobs", summary="Every job")
def jobs(service: ServiceOf) -> Jobs:
    """One line about each, newest first."""
    return Jobs(jobs=[job_view(service, job.name) for job in service.store.jobs()])


@router.get("/v1/jobs/{job}", responses=ERRORS, summary="One job")
def job(job: JobName, service: ServiceOf) -> JobView:
    """One line about it."""
    return job_view(service, job)


@router.put("/v1/jobs/{job}", responses={**ERRORS, **CONFLICT}, summary="Register a job")
def register(
    job: JobName,
    registration: Annotated[
        Registration, BodyParameter(examples=[{"mode": "auto"}, {"config": {"window": 5}, "mode": "observe"}])
    ],
    service: ServiceOf,
) -> JobView:
    """Repeating it changes nothing. Other settings get 409 once the job has a ledger, which was folded with the old."""
    service.register(
        job,
        config=registration.config,
        mode=registration.mode,
        issuer=registration.issuer,
        reason=registration.reason,
    )
    return job_view(service, job)
