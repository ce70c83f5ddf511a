"""Incidents: conditions that last."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trimtab.agent.state import Incident, Phase
from trimtab.api.problem import ERRORS
from trimtab.api.routes.common import JobName, ServiceOf
from trimtab.api.views import View

router = APIRouter(tags=["incidents"])


class Incidents(View):
    """One entry a fingerprint, newest first."""

    incidents: list[Incident]


@router.get("/v1/jobs/{job}/incidents", responses=ERRORS, summary="Incidents")
def incidents(
    job: JobName,
    service: ServiceOf,
    phase: Annotated[list[Phase] | None, Query(description="Only these phases; repeat for several.")] = None,
) -> Incidents:
    """A condition that comes back is the same incident again; the events tell of every time."""
    found = [one for one in service.state(job).incidents.values() if not phase or one.phase in phase]
    return Incidents(incidents=sorted(found, key=lambda one: one.since_step, reverse=True))
