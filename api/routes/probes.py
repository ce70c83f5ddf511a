"""For the machines that look after this machine."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from trimtab.api.problem import Problems, answer
from trimtab.api.readiness import Readiness
from trimtab.api.routes.common import MetricsOf
from trimtab.api.views import View

router = APIRouter(tags=["operations"])


class Alive(View):
    """The process answers."""

    status: str = "ok"


@router.get("/livez", summary="Is the process alive?")
async def livez() -> Alive:
    """Looks at nothing else: a database that is away is no reason to restart the agent."""
    return Alive()


@router.get(
    "/readyz",
    summary="Can it serve?",
    response_model=Alive,
    responses={HTTPStatus.SERVICE_UNAVAILABLE: {"model": Problems, "description": "It cannot; the errors say why."}},
)
async def readyz(request: Request) -> Response | Alive:
    """The database answers and its schema is the newest, there is room for what comes, and every worker works."""
    readiness: Readiness = request.app.state.readiness
    reasons = await readiness.reasons()
    return answer(HTTPStatus.SERVICE_UNAVAILABLE, reasons) if reasons else Alive()


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
def metrics(metrics: MetricsOf) -> Response:
    """Read from the store at each scrape."""
    return Response(metrics.exposition(), media_type=CONTENT_TYPE_LATEST)
