"""What the routes share: the service of the app, and the parameters that recur."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Request
from pydantic import AfterValidator, Field, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError, ValidationError

from trimtab.agent.changes import AGENT
from trimtab.api.metrics import Metrics
from trimtab.api.service import Service
from trimtab.hooks.controls import ControlValue
from trimtab.hooks.records import MAX_JOB_LENGTH


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


ServiceOf = Annotated[Service, Depends(_service)]
MetricsOf = Annotated[Metrics, Depends(_metrics)]
JobName = Annotated[str, Path(description="Name of the job.", max_length=MAX_JOB_LENGTH, examples=["cliff-auto"])]


def _a_person(issuer: str) -> str:
    if issuer.strip().lower() == AGENT:
        raise PydanticCustomError("issuer", "is the agent itself; give the name of whoever decides")
    return issuer


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
Reason = Annotated[str, Field(min_length=1, max_length=1000, description="Why, for the audit trail.")]
OPERATOR = "operator"
