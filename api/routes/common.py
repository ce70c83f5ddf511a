"""What the routes share: the service of the app, and the parameters that recur."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Path, Request
from pydantic import AfterValidator, Field, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError, ValidationError

from trimtab.agent.changes import AGENT
from trimtab.api.access.doorman import Doorman
from trimtab.api.access.principal import Principal
from trimtab.api.metrics import Metrics
from trimtab.api.problem import ApiError
from trimtab.api.service import Service
from trimtab.hooks.controls import ControlValue
from trimtab.hooks.records import MAX_JOB_LENGTH
from trimtab.storage.values import Origin


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


def _principal(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


def _doorman(request: Request) -> Doorman:
    doorman: Doorman = request.app.state.doorman
    return doorman


ServiceOf = Annotated[Service, Depends(_service)]
DoormanOf = Annotated[Doorman, Depends(_doorman)]
MetricsOf = Annotated[Metrics, Depends(_metrics)]
PrincipalOf = Annotated[Principal, Depends(_principal)]
"""Who asks; `origin` is what the audit log wants of them."""
JobName = Annotated[str, Path(description="Name of the job.", max_length=MAX_JOB_LENGTH, examples=["cliff-auto"])]
DetectorName = Annotated[str, Path(description="Name of the detector.", max_length=64, examples=["reward"])]


def _known_job(job: JobName, service: ServiceOf) -> str:
    service.store.job(job)
    return job


KnownJob = Annotated[str, Depends(_known_job)]
"""A job that there is: for an answer that has begun before anything is read."""


def origin_of(request: Request) -> Origin:
    """Who asks, for the audit trail."""
    return _principal(request).origin


def check_job(request: Request, job: str) -> None:
    """Raise `ApiError` (403) where whoever asks may only speak for another job."""
    bound = _principal(request).job
    if bound is not None and bound != job:
        message = f"this token is for the job {bound!r}; report under that name, or use a token for this one"
        raise ApiError(HTTPStatus.FORBIDDEN, "job", message, job)


def _a_person(issuer: str) -> str:
    if issuer.strip().lower() == AGENT:
        raise PydanticCustomError("issuer", "is the agent itself; give the name of whoever decides")
    return issuer


def _visible(reason: str) -> str:
    if not any(character.isprintable() and not character.isspace() for character in reason):
        raise PydanticCustomError("reason", "is blank; say why, in words that can be read")
    return reason


def _one_value(value: Any, read: ValidatorFunctionWrapHandler) -> ControlValue | None:
    try:
        found: ControlValue | None = read(value)
    except ValidationError:  # one problem, not one for each type that it is not
        raise PydanticCustomError("control", "should be a boolean, a number or a string") from None
    return found


Issuer = Annotated[
    str,
    Field(min_length=1, max_length=128, description="Who asks for it, for the audit trail."),
    AfterValidator(_a_person),
]
Value = Annotated[ControlValue, WrapValidator(_one_value)]
ValueOrNone = Annotated[ControlValue | None, WrapValidator(_one_value)]
Reason = Annotated[
    str, Field(min_length=1, max_length=1000, description="Why, for the audit trail."), AfterValidator(_visible)
]
OPERATOR = "operator"
