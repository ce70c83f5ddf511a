"""Health: verdicts, open incidents, and whether the controls are where they should be."""

from __future__ import annotations

from fastapi import APIRouter

from trimtab.api.health_view import HealthView, health_view
from trimtab.api.routes.common import JobName, ServiceOf

router = APIRouter(tags=["health"])


@router.get("/v1/jobs/{job}/health", summary="Is it well?")
def get_health(job: JobName, service: ServiceOf) -> HealthView:
    """Only `ok` is green: `inconclusive` and `not_observed` say that nobody knows."""
    return health_view(service, job)
