"""Incidents: conditions that last."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Body as BodyParameter

from trimtab.agent.incidents import fingerprint
from trimtab.agent.state import Incident, OperatorVerb, Phase
from trimtab.api.problem import CONFLICT
from trimtab.api.routes.acting import Reasoned, acted
from trimtab.api.routes.common import DetectorName, JobName, PrincipalOf, ServiceOf
from trimtab.api.views import View

router = APIRouter(tags=["incidents"])


class Incidents(View):
    """One entry a fingerprint, newest first."""

    incidents: list[Incident]


class Acknowledged(View):
    """The incident, and who looks after it."""

    incident: Incident


@router.get("/v1/jobs/{job}/incidents", summary="Incidents")
def list_incidents(
    job: JobName,
    service: ServiceOf,
    phase: Annotated[list[Phase] | None, Query(description="Only these phases; repeat for several.")] = None,
) -> Incidents:
    """A condition that comes back is the same incident again; the events tell of every time. There is at most one for
    each detector."""
    found = [one for one in service.state(job).incidents.values() if not phase or one.phase in phase]
    return Incidents(incidents=sorted(found, key=lambda one: one.since_step, reverse=True))


@router.post("/v1/jobs/{job}/incidents/{detector}/ack", responses=CONFLICT, summary="Look after an incident")
def acknowledge_incident(
    job: JobName,
    detector: DetectorName,
    asked: Annotated[Reasoned, BodyParameter(examples=[{"reason": "looking into it", "issuer": "ada"}])],
    service: ServiceOf,
    principal: PrincipalOf,
) -> Acknowledged:
    """Says who looks after it, for as long as it is what it is: one that gets worse, or begins again, is nobody's. It
    is judged and acted on all the same. 409 when the detector has no incident that is open."""
    after = acted(service, principal, job, OperatorVerb.ACKNOWLEDGE, asked, target=detector).state
    return Acknowledged(incident=after.incidents[fingerprint(job, detector)])
