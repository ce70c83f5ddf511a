"""The kill switch: every override lifted, whoever set it, and the agent's hands off."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Body as BodyParameter

from trimtab.agent.state import OperatorVerb
from trimtab.api.controls_view import ControlsView, controls_view
from trimtab.api.routes.acting import Reasoned, acted
from trimtab.api.routes.common import JobName, PrincipalOf, ServiceOf

router = APIRouter(tags=["kill switch"])


@router.post("/v1/jobs/{job}/kill", summary="Take the agent's hands off the job")
def kill(
    job: JobName,
    order: Annotated[Reasoned, BodyParameter(examples=[{"reason": "nobody watches it tonight"}])],
    service: ServiceOf,
    principal: PrincipalOf,
) -> ControlsView:
    """Lifts every override, the agent's and people's, and sets the mode to `observe`.

    No override is taken until somebody sets the mode again. With the agent out of reach, `TRIMTAB_DISABLE` and the kill
    file do the same where the job trains.
    """
    return controls_view(acted(service, principal, job, OperatorVerb.KILL, order).state)
