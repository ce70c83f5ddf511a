"""The kill switch: every override lifted, whoever set it, and the agent's hands off."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Body as BodyParameter

from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.api.controls_view import ControlsView, controls_view
from trimtab.api.problem import ERRORS
from trimtab.api.routes.common import OPERATOR, Issuer, JobName, Reason, ServiceOf
from trimtab.api.views import Body

router = APIRouter(tags=["kill switch"])


class Kill(Body):
    """Why."""

    reason: Reason
    issuer: Issuer = OPERATOR


KillBody = Annotated[Kill, BodyParameter(examples=[{"reason": "nobody watches it tonight"}])]


@router.post("/v1/jobs/{job}/kill", responses=ERRORS, summary="Take the agent's hands off the job")
def kill(job: JobName, order: KillBody, service: ServiceOf) -> ControlsView:
    """Lifts every override, the agent's and people's, and sets the mode to `observe`.

    No override is taken until somebody sets the mode again. With the agent out of reach, `TRIMTAB_DISABLE` and the kill
    file do the same where the job trains.
    """
    action = OperatorAction(job=job, verb=OperatorVerb.KILL, issuer=order.issuer, reason=order.reason)
    return controls_view(service.operate(action).state)
