"""Baselines: what the agent takes for usual, and where its detectors would alarm."""

from __future__ import annotations

from fastapi import APIRouter

from trimtab.api.baselines_view import BaselinesView, baselines_view
from trimtab.api.restore import config_of
from trimtab.api.routes.common import JobName, ServiceOf

router = APIRouter(tags=["signals"])


@router.get("/v1/jobs/{job}/baselines", summary="What is usual, and where it would alarm")
def get_baselines(job: JobName, service: ServiceOf) -> BaselinesView:
    """After the newest step: the baseline of each signal that a detector asks for, the thresholds that are numbers of a
    signal's own unit, and each detector's settings with what it judged by. A detector that sums up distances has no
    such threshold; its evidence has the sum and the limit."""
    return baselines_view(config_of(job, service.store.job(job).config), service.state(job))
