"""Controls: what is wanted of a job, what is in effect, and a person's way to change it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter
from fastapi import Body as BodyParameter
from pydantic import Field

from trimtab.agent.state import OperatorVerb
from trimtab.api.controls_view import ControlsView, controls_view
from trimtab.api.problem import CONFLICT, ApiError, named
from trimtab.api.routes.acting import Reasoned, acted
from trimtab.api.routes.common import JobName, PrincipalOf, ServiceOf, ValueOrNone
from trimtab.hooks.controls import ControlError

router = APIRouter(tags=["controls"])

EXAMPLE = {"overrides": {"centering": True, "clip_low": None}, "reason": "trying score centering", "base_generation": 3}


class Patch(Reasoned):
    """A change of the overrides."""

    overrides: dict[str, ValueOrNone] = Field(
        min_length=1, description="By control: the value to set, or null to leave it to the run again."
    )
    base_generation: int | None = Field(
        default=None,
        ge=0,
        strict=True,
        description="Generation that the change was worked out against; another one gets 409.",
    )


@router.get("/v1/jobs/{job}/controls", summary="Wanted and in effect")
def get_controls(job: JobName, service: ServiceOf) -> ControlsView:
    """`in_sync` is false from a change until the trainer reports it, and for good where it refuses an override."""
    return controls_view(service.state(job))


@router.patch("/v1/jobs/{job}/controls", responses=CONFLICT, summary="Change controls by hand")
def patch_controls(
    job: JobName,
    change: Annotated[Patch, BodyParameter(examples=[EXAMPLE])],
    service: ServiceOf,
    principal: PrincipalOf,
) -> ControlsView:
    """Works in every mode: a person may toggle what the agent can. The agent never overrides what a person set. To lift
    what is not overridden changes nothing."""
    verb, base = OperatorVerb.PATCH_CONTROLS, change.base_generation
    try:
        outcome = acted(service, principal, job, verb, change, base_generation=base, overrides=change.overrides)
    except ControlError as error:
        first, *more = (named(line, ["overrides"], change.overrides) for line in str(error).splitlines())
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        raise ApiError(status, first.field, first.message, first.value, more) from error
    return controls_view(outcome.state)
