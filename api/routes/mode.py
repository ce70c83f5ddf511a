"""Mode: how far the agent may go with a job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Body as BodyParameter

from trimtab.agent.state import Mode, OperatorVerb
from trimtab.api.routes.acting import Reasoned, acted
from trimtab.api.routes.common import JobName, PrincipalOf, ServiceOf
from trimtab.api.views import View

router = APIRouter(tags=["mode"])


class ModeView(View):
    """The mode of one job."""

    job: str
    mode: Mode


class ModeChange(Reasoned):
    """Another mode."""

    mode: Mode


@router.get("/v1/jobs/{job}/mode", summary="How far may the agent go?")
def get_mode(job: JobName, service: ServiceOf) -> ModeView:
    """`observe`, `advise`, `approve` or `auto`."""
    return ModeView(job=job, mode=service.state(job).mode)


@router.put("/v1/jobs/{job}/mode", summary="Let the agent go further, or less far")
def set_mode(
    job: JobName,
    change: Annotated[ModeChange, BodyParameter(examples=[{"mode": "auto", "reason": "watched it for a week"}])],
    service: ServiceOf,
    principal: PrincipalOf,
) -> ModeView:
    """Setting the mode that it is in already changes nothing and leaves no trace, unless it lets a locked agent act
    again or takes the kill switch back."""
    state = service.state(job)
    if state.mode is not change.mode or state.killed or state.ladder.locked:
        state = acted(service, principal, job, OperatorVerb.SET_MODE, change, mode=change.mode).state
    return ModeView(job=job, mode=state.mode)
