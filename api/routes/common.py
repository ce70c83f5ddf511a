"""What the routes share: the service of the app, and the parameters that recur."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request
from pydantic import Field

from trimtab.api.metrics import Metrics
from trimtab.api.service import Service
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


Issuer = Annotated[str, Field(min_length=1, max_length=128, description="Who asks for it, for the audit trail.")]
Reason = Annotated[str, Field(min_length=1, max_length=1000, description="Why, for the audit trail.")]
OPERATOR = "operator"
