"""Jobs: who reports here, and under which settings."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi import Body as BodyParameter
from pydantic import BeforeValidator, Field

from trimtab.agent.config import AgentConfig
from trimtab.agent.state import Mode, State
from trimtab.api.access.scopes import Scope
from trimtab.api.health_view import JobView, job_view, job_views, overview
from trimtab.api.problem import CONFLICT, ApiError
from trimtab.api.routes.acting import Reasoned
from trimtab.api.routes.common import JobName, PrincipalOf, Reason, ServiceOf, check_job
from trimtab.api.routes.paging import MAX_PAGE, PAGE, CursorOf, Limit, LongCursorOf, Page, paged
from trimtab.api.service import Service
from trimtab.api.strict import check_numbers
from trimtab.hooks.records import MAX_JOB_LENGTH
from trimtab.storage.archive import Archive
from trimtab.storage.overview import Attempt

router = APIRouter(tags=["jobs"])
REGISTERED = "registered"
"""The reason where none is given."""


def _numbers(config: Any) -> Any:
    check_numbers(AgentConfig, config)
    return config


class Registration(Reasoned):
    """What a job is to be registered with; nothing of it is mandatory."""

    config: Annotated[AgentConfig | None, BeforeValidator(_numbers)] = Field(
        default=None,
        description="The agent's settings; what is missing has its default. Fixed by the first ledger row.",
    )
    mode: Mode | None = Field(default=None, description="Null leaves it as it is, or as the settings say.")
    reason: Reason = REGISTERED


class Jobs(Page):
    """A page of jobs, newest first."""

    jobs: list[JobView]


class Attempts(Page):
    """A page of the attempts of a job, newest first."""

    attempts: list[Attempt]


@router.get("/v1/jobs", summary="Jobs")
def list_jobs(
    service: ServiceOf,
    cursor: CursorOf,
    limit: Limit = PAGE,
    state: Annotated[list[State] | None, Query(description="Only in these states; repeat for several.")] = None,
    mode: Annotated[list[Mode] | None, Query(description="Only in these modes; repeat for several.")] = None,
    archived: Annotated[
        bool, Query(description="Those that are archived, in the place of those that are not.")
    ] = False,
    query: Annotated[
        str, Query(max_length=MAX_JOB_LENGTH, description="Only those whose name contains this, in any case.")
    ] = "",
) -> Jobs:
    """One line about each, newest first."""
    lines = _lines(service, archived=archived, query=query, before=cursor, chunk=limit + 1)
    wanted = (
        (number, line)
        for number, line in lines
        if (not state or line.state in state) and (not mode or line.mode in mode)
    )
    page, following = paged(list(islice(wanted, limit + 1)), limit, cursor=lambda one: one[0])
    return Jobs(jobs=[line for _, line in page], next=following)


def _lines(
    service: Service, *, archived: bool, query: str, before: int | None, chunk: int
) -> Iterator[tuple[int, JobView]]:
    """Id and line of each job, read a stretch at a time for as long as more are wanted."""
    while True:
        read = overview(service).lines(archived=archived, query=query, before=before, limit=chunk)
        yield from zip((line.id for line in read), job_views(service, read), strict=True)
        if len(read) < chunk:
            return
        before, chunk = read[-1].id, MAX_PAGE


@router.get("/v1/jobs/{job}", summary="One job")
def get_job(job: JobName, service: ServiceOf) -> JobView:
    """One line about it."""
    return job_view(service, job)


@router.put("/v1/jobs/{job}", responses=CONFLICT, summary="Register a job")
def register_job(
    job: JobName,
    registration: Annotated[
        Registration, BodyParameter(examples=[{"mode": "auto"}, {"config": {"window": 5}, "mode": "observe"}])
    ],
    request: Request,
    service: ServiceOf,
    principal: PrincipalOf,
) -> JobView:
    """Repeating it changes nothing. Other settings get 409 once the job has a ledger, which was folded with the old.

    To set the mode takes the scope `control`. Where the kill switch is set or the agent is locked out, another mode
    gets 409: set the mode itself.
    """
    check_job(request, job)
    begins = registration.config.mode if registration.config is not None else Mode.OBSERVE
    for field, mode in (("mode", registration.mode), ("config.mode", None if begins is Mode.OBSERVE else begins)):
        if mode is not None and not principal.may(Scope.CONTROL):
            message = "to set it takes a token with the scope control; leave it out to register the job only"
            raise ApiError(HTTPStatus.FORBIDDEN, field, message, mode)
    service.register(
        job,
        config=registration.config,
        mode=registration.mode,
        issuer=registration.by(principal),
        reason=registration.reason,
        origin=principal.origin,
    )
    return job_view(service, job)


ArchiveBody = Annotated[Reasoned, BodyParameter(examples=[{"reason": "it has finished"}])]


@router.post("/v1/jobs/{job}/archive", summary="Put a job away")
def archive_job(job: JobName, asked: ArchiveBody, service: ServiceOf, principal: PrincipalOf) -> JobView:
    """It leaves the list and the metrics; nothing of it is deleted. A job that reports again is back by itself, since
    what trains is watched. Repeating it changes nothing."""
    Archive(service.database).put_away(
        job, at=service.clock(), origin=principal.origin, issuer=asked.by(principal), reason=asked.reason
    )
    return job_view(service, job)


@router.post("/v1/jobs/{job}/unarchive", summary="Watch an archived job again")
def unarchive_job(job: JobName, asked: ArchiveBody, service: ServiceOf, principal: PrincipalOf) -> JobView:
    """Repeating it changes nothing."""
    Archive(service.database).bring_back(
        job, at=service.clock(), origin=principal.origin, issuer=asked.by(principal), reason=asked.reason
    )
    return job_view(service, job)


@router.get("/v1/jobs/{job}/attempts", summary="Attempts of a job")
def list_attempts(job: JobName, service: ServiceOf, cursor: LongCursorOf, limit: Limit = PAGE) -> Attempts:
    """Newest first, each with its first and last step and when they came."""
    found = overview(service).attempts(job, before=cursor, limit=limit + 1)
    page, following = paged(found, limit, cursor=lambda one: one.attempt)
    return Attempts(attempts=page, next=following)
