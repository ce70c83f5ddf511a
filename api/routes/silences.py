"""Silences: incidents that a person does not want to be told of."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Body as BodyParameter
from pydantic import Field

from trimtab.agent.checks import MOST
from trimtab.agent.state import OperatorVerb, Silence
from trimtab.api.problem import CONFLICT
from trimtab.api.routes.acting import Reasoned, acted
from trimtab.api.routes.common import DetectorName, JobName, PrincipalOf, ServiceOf
from trimtab.api.views import View

router = APIRouter(tags=["incidents"])


class Silences(View):
    """Those that hold; at most one for each detector."""

    silences: list[Silence]


class NewSilence(Reasoned):
    """For how long, and why."""

    steps: Annotated[int, Field(strict=True, ge=1, le=MOST)] | None = Field(
        default=None, description="Steps that it lasts; null until it is cancelled."
    )


@router.get("/v1/jobs/{job}/silences", summary="What nobody is told of")
def list_silences(job: JobName, service: ServiceOf) -> Silences:
    """A silenced incident is judged, shown and acted on as any other."""
    return Silences(silences=list(service.state(job).silences))


@router.put("/v1/jobs/{job}/silences/{detector}", responses=CONFLICT, summary="Silence a detector")
def silence_detector(
    job: JobName,
    detector: DetectorName,
    asked: Annotated[NewSilence, BodyParameter(examples=[{"steps": 100, "reason": "we know, a new dataset"}])],
    service: ServiceOf,
    principal: PrincipalOf,
) -> Silences:
    """Takes the place of a silence that there is."""
    verb = OperatorVerb.SILENCE
    after = acted(service, principal, job, verb, asked, target=detector, steps=asked.steps).state
    return Silences(silences=list(after.silences))


@router.delete("/v1/jobs/{job}/silences/{detector}", responses=CONFLICT, summary="Be told again")
def unsilence_detector(
    job: JobName,
    detector: DetectorName,
    asked: Annotated[Reasoned, BodyParameter(examples=[{"reason": "the new dataset is in"}])],
    service: ServiceOf,
    principal: PrincipalOf,
) -> Silences:
    """What still alarms is told at its next step."""
    after = acted(service, principal, job, OperatorVerb.UNSILENCE, asked, target=detector).state
    return Silences(silences=list(after.silences))
