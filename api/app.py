"""The web application: a guard, one error shape, and one router a concept."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.staticfiles import StaticFiles

from trimtab.api import problem
from trimtab.api.access.description import describe
from trimtab.api.access.doorman import Doorman
from trimtab.api.access.gate import Gate
from trimtab.api.background import Background
from trimtab.api.description import complete, operation_id
from trimtab.api.guard import Guard
from trimtab.api.hub import Hub
from trimtab.api.ingest import IngestQueue
from trimtab.api.metrics import Metrics
from trimtab.api.metrics.responses import CountedResponses
from trimtab.api.notify.desk import Desk
from trimtab.api.notify.posting import Poster
from trimtab.api.notify.worker import AlertWorker
from trimtab.api.readiness import Readiness
from trimtab.api.reported import schemas
from trimtab.api.request_log import LoggedRequests
from trimtab.api.retention import Retention
from trimtab.api.routes import (
    audit,
    baselines,
    controls,
    dashboard,
    events,
    health,
    incidents,
    jobs,
    kill,
    mode,
    probes,
    proposals,
    replay,
    session,
    settings,
    signals,
    silences,
    stream,
    stretches,
    summaries,
    tokens,
    webhooks,
)
from trimtab.api.service import Service
from trimtab.api.settings import Settings
from trimtab.storage.endpoints import Endpoints

DESCRIPTION = """Watches the training runs that report to it and, as far as a job's mode allows, changes its controls.

Numbers that are not finite are the strings "NaN", "Infinity" and "-Infinity"; null means *not observed*.
Every error is `{"errors": [{"field", "value", "message"}]}`, and every answer names its request in `x-request-id`."""
ROUTES = (
    summaries,  # first, as most requests are for it
    jobs,
    settings,
    signals,
    stretches,
    baselines,
    health,
    incidents,
    silences,
    events,
    stream,
    controls,
    mode,
    kill,
    proposals,
    replay,
    session,
    tokens,
    webhooks,
    audit,
    probes,
    dashboard,
)
STATIC = Path(__file__).resolve().parent / "static"


def create_app(service: Service, settings: Settings | None = None) -> FastAPI:
    """The application on a service whose store is migrated."""
    settings = settings or Settings()
    app = FastAPI(
        title="trimtab",
        version=version("trimtab"),
        description=DESCRIPTION,
        docs_url=None,  # both pages load scripts from elsewhere
        redoc_url=None,
        generate_unique_id_function=operation_id,
        lifespan=lambda app: app.state.background.at_work(),
    )
    app.state.service = service
    app.state.queue = queue = IngestQueue(service)
    app.state.hub = hub = Hub(service.database)
    app.state.replaying = asyncio.Lock()
    service.listeners.append(hub.stored)
    app.state.metrics = metrics = Metrics(service, queue)
    poster = Poster(settings.alerts.policy)
    app.state.desk = Desk(Endpoints(service.database), poster, service.clock)
    app.state.alerts = teller = AlertWorker(
        service.database, poster, clock=service.clock, link=settings.alerts.link, on_delivery=metrics.delivered
    )
    retention = Retention(service, settings.keep)
    # The last one stops first: what is stored last is told too.
    app.state.background = background = Background([retention, teller, queue, hub])
    app.state.readiness = Readiness(service.database, queue, background)
    metrics.follow("trimtab_stream_watchers", "Readers of the live stream.", lambda: hub.watchers)
    slow = "Readers of the live stream that were sent away, since they read too slowly."
    metrics.follow("trimtab_stream_slow_watchers", slow, lambda: hub.sent_away, grows=True)
    for routes in ROUTES:
        app.include_router(routes.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.state.doorman = doorman = Doorman(service.database, settings.access, clock=service.clock)
    app.add_middleware(Gate, doorman=doorman)
    app.add_middleware(Guard)
    app.add_middleware(LoggedRequests)
    app.add_middleware(CountedResponses, metrics=metrics)  # the last one stands before all others
    _describe(app)
    problem.install(app, on_invalid=lambda request: _count_invalid(request, metrics))
    return app


def _count_invalid(request: Request, metrics: Metrics) -> None:
    if request.url.path == summaries.PATH:
        metrics.invalid()


def _describe(app: FastAPI) -> None:
    """Put what the framework does not see, since it is read here, into the description of the API."""
    generate = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            whole = generate()
            whole["components"]["schemas"].update(schemas())
            describe(whole)
            complete(whole)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
