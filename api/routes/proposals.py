"""Proposals: changes that wait for a person, or stand as advice."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi import Body as BodyParameter

from trimtab.agent.state import OperatorAction, OperatorVerb, Proposal
from trimtab.api.controls_view import ControlsView, controls_view
from trimtab.api.portable import MAX_INTEGER
from trimtab.api.problem import CONFLICT, ERRORS, ApiError
from trimtab.api.routes.common import OPERATOR, Issuer, JobName, Reason, ServiceOf
from trimtab.api.service import Service
from trimtab.api.views import Body, View

router = APIRouter(tags=["proposals"])

ProposalId = Annotated[int, Path(ge=1, le=MAX_INTEGER, description="The proposal's `id`.")]


class Proposals(View):
    """Oldest first."""

    proposals: list[Proposal]


class Decision(Body):
    """Why it is approved or rejected."""

    reason: Reason
    issuer: Issuer = OPERATOR


DecisionBody = Annotated[Decision, BodyParameter(examples=[{"reason": "entropy is falling, go ahead"}])]


@router.get("/v1/jobs/{job}/proposals", responses=ERRORS, summary="What the agent would do")
def proposals(job: JobName, service: ServiceOf) -> Proposals:
    """In mode `approve` they wait for an answer; in mode `advise` they are only put on record."""
    return Proposals(proposals=list(service.state(job).proposals))


@router.post("/v1/jobs/{job}/proposals/{number}/approve", responses={**ERRORS, **CONFLICT}, summary="Let it be done")
def approve(job: JobName, number: ProposalId, decision: DecisionBody, service: ServiceOf) -> ControlsView:
    """Approves exactly the overrides of the proposal; 409 when the controls have changed since it was made."""
    return _decide(service, job, number, decision, OperatorVerb.APPROVE)


@router.post("/v1/jobs/{job}/proposals/{number}/reject", responses={**ERRORS, **CONFLICT}, summary="Do not do it")
def reject(job: JobName, number: ProposalId, decision: DecisionBody, service: ServiceOf) -> ControlsView:
    """The agent does not make it again while the incident lasts."""
    return _decide(service, job, number, decision, OperatorVerb.REJECT)


def _decide(service: Service, job: str, number: int, decision: Decision, verb: OperatorVerb) -> ControlsView:
    if number not in {proposal.id for proposal in service.state(job).proposals}:
        raise ApiError(HTTPStatus.NOT_FOUND, "number", "no such proposal is open; look at the list again", number)
    action = OperatorAction(job=job, verb=verb, issuer=decision.issuer, reason=decision.reason, proposal=number)
    return controls_view(service.operate(action).state)
