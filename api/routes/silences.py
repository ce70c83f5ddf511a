"""Silences: incidents that a person does not want to be told of."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi import Body as BodyParameter
from pydantic import Field

from trimtab.agent.checks import MOST
from trimtab.agent.state import OperatorAction, OperatorVerb, Silence
from trimtab.api.problem import CONFLICT, ERRORS
from trimtab.api.routes.common import OPERATOR, Issuer, JobName, Reason, ServiceOf
from trimtab.api.views import Body, View

router = APIRouter(tags=["incidents"])

Detector = Annotated[str, Path(max_length=64, description="Whose incidents.", examples=["reward"])]


class Silences(View):
    """Those that hold."""

    silences: list[Silence]


class NewSilence(Body):
    """For how long, and why."""

    steps: Annotated[int, Field(ge=1, le=MOST)] | None = Field(
        default=None, description="Steps that it lasts; null until it is cancelled."
    )
    reason: Reason
    issuer: Issuer = OPERATOR


class Cancelled(Body):
    """Why it is cancelled."""

    reason: Reason
    issuer: Issuer = OPERATOR


CancelledBody = Annotated[Cancelled, BodyParameter(examples=[{"reason": "the new dataset is in"}])]


@router.get("/v1/jobs/{job}/silences", responses=ERRORS, summary="What nobody is told of")
def silences(job: JobName, service: ServiceOf) -> Silences:
    """A silenced incident is judged, shown and acted on as any other."""
    return Silences(silences=list(service.state(job).silences))


@router.put("/v1/jobs/{job}/silences/{detector}", responses={**ERRORS, **CONFLICT}, summary="Silence a detector")
def silence(
    job: JobName,
    detector: Detector,
    asked: Annotated[NewSilence, BodyParameter(examples=[{"steps": 100, "reason": "we know, a new dataset"}])],
    service: ServiceOf,
) -> Silences:
    """Takes the place of a silence that there is."""
    action = OperatorAction(
        job=job,
        verb=OperatorVerb.SILENCE,
        issuer=asked.issuer,
        reason=asked.reason,
        target=detector,
        steps=asked.steps,
    )
    return Silences(silences=list(service.operate(action).state.silences))


@router.delete("/v1/jobs/{job}/silences/{detector}", responses={**ERRORS, **CONFLICT}, summary="Be told again")
def unsilence(job: JobName, detector: Detector, asked: CancelledBody, service: ServiceOf) -> Silences:
    """What still alarms is told at its next step."""
    action = OperatorAction(
        job=job, verb=OperatorVerb.UNSILENCE, issuer=asked.issuer, reason=asked.reason, target=detector
    )
    return Silences(silences=list(service.operate(action).state.silences))
