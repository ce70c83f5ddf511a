"""Proposals: changes that wait for a person, or stand as advice."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi import Body as BodyParameter
from pydantic import Field

from trimtab.agent.run_state import RunState
from trimtab.agent.state import EventKind, OperatorVerb
from trimtab.api.access.principal import Principal
from trimtab.api.controls_view import ControlsView, controls_view
from trimtab.api.portable import MAX_INTEGER
from trimtab.api.problem import CONFLICT, ApiError, Problems
from trimtab.api.proposal_view import ProposalView, proposal_views
from trimtab.api.routes.acting import Reasoned, acted
from trimtab.api.routes.common import JobName, PrincipalOf, ServiceOf, ValueOrNone
from trimtab.api.service import Service
from trimtab.api.views import View
from trimtab.storage.values import StoredEvent

router = APIRouter(tags=["proposals"])

ProposalId = Annotated[int, Path(ge=1, le=MAX_INTEGER, description="The proposal's `id`.")]
GONE: dict[int | str, dict[str, Any]] = {
    HTTPStatus.GONE: {"model": Problems, "description": "It stands no more; the error says what became of it."}
}
ENDINGS = {
    EventKind.APPROVED: "was approved",
    EventKind.REJECTED: "was rejected",
    EventKind.WITHDRAWN: "was withdrawn",
    EventKind.CONTROLS_CHANGED: "was carried out",
}
"""How a proposal ends, by the kind of event that says so."""


class Proposals(View):
    """Those that stand, the oldest first; at most one of each direction."""

    proposals: list[ProposalView]


class Decision(Reasoned):
    """What is decided on, and why."""

    changes: dict[str, ValueOrNone] = Field(
        description="The `changes` of the proposal, just as they were seen; others get 409."
    )


DecisionBody = Annotated[
    Decision,
    BodyParameter(
        examples=[
            {
                "changes": {"centering": True, "ratio_reference": "recomputed"},
                "reason": "entropy is falling, go ahead",
                "issuer": "ada",
            }
        ]
    ),
]


@router.get("/v1/jobs/{job}/proposals", summary="What the agent would do")
def list_proposals(job: JobName, service: ServiceOf) -> Proposals:
    """In mode `approve` they wait for an answer; in mode `advise` they are only put on record. Without an answer one is
    withdrawn after `policy.expire` steps, and made again from what is seen then."""
    return Proposals(proposals=proposal_views(service.state(job)))


@router.post("/v1/jobs/{job}/proposals/{number}/approve", responses={**CONFLICT, **GONE}, summary="Let it be done")
def approve_proposal(
    job: JobName, number: ProposalId, decision: DecisionBody, service: ServiceOf, principal: PrincipalOf
) -> ControlsView:
    """Approves just the changes that are given back; 409 where the proposal is about others, 410 where it is over."""
    return _decide(service, principal, job, number, decision, OperatorVerb.APPROVE)


@router.post("/v1/jobs/{job}/proposals/{number}/reject", responses={**CONFLICT, **GONE}, summary="Do not do it")
def reject_proposal(
    job: JobName, number: ProposalId, decision: DecisionBody, service: ServiceOf, principal: PrincipalOf
) -> ControlsView:
    """The agent does not make it again while the incident lasts."""
    return _decide(service, principal, job, number, decision, OperatorVerb.REJECT)


def _decide(
    service: Service, principal: Principal, job: str, number: int, decision: Decision, verb: OperatorVerb
) -> ControlsView:
    _check_stands(service, service.state(job), number)
    after = acted(service, principal, job, verb, decision, proposal=number, changes=decision.changes).state
    return controls_view(after)


def _check_stands(service: Service, state: RunState, number: int) -> None:
    if any(proposal.id == number for proposal in state.proposals):
        return
    if number >= state.next_proposal:
        raise ApiError(HTTPStatus.NOT_FOUND, "number", "no such proposal was made; look at the list again", number)
    ends = [
        event
        for event in service.store.events(state.job, kinds=list(ENDINGS))
        if event.detail.get("proposal") == number
    ]
    told = _ending(ends[0]) if ends else "stands no more"
    raise ApiError(HTTPStatus.GONE, "number", f"proposal {number} {told}; look at the list again", number)


def _ending(event: StoredEvent) -> str:
    why = f": {event.message}" if event.message else ""
    return f"{ENDINGS[EventKind(event.kind)]} at step {event.step} of attempt {event.attempt}{why}"
