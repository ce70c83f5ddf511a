"""Webhooks: who is told of what is wrong, and how it reached them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import anyio.from_thread
from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi import Body as BodyParameter

from trimtab.api.notify.desk import Desk, WebhookRuleError, signs
from trimtab.api.notify.worker import AlertWorker
from trimtab.api.problem import CONFLICT, MALFORMED, ApiError, Problems, named
from trimtab.api.routes.common import PrincipalOf
from trimtab.api.routes.paging import PAGE, CursorOf, Limit, paged
from trimtab.api.routes.webhook_views import (
    DeliveryPage,
    DeliveryView,
    IssuedWebhook,
    NewWebhook,
    Reasoned,
    Rotation,
    Trial,
    WebhookPatch,
    Webhooks,
    WebhookView,
    Why,
    delivery_view,
    webhook_view,
)
from trimtab.storage.deliveries import Deliveries
from trimtab.storage.delivery import DeliveryStateError, Status, UnknownDeliveryError
from trimtab.storage.endpoints import Endpoint, EndpointConflictError, UnknownEndpointError

router = APIRouter(tags=["webhooks"])

NOT_FOUND: dict[int | str, dict[str, Any]] = {
    HTTPStatus.NOT_FOUND: {"model": Problems, "description": "There is no such webhook, or no such delivery."}
}
TRIAL_S = 8.0
"""How long the answer to a test waits for its end: shorter than clients wait for an answer."""
TRIAL_POLL_S = 0.05
NEW = [
    {"name": "training channel", "shape": "slack", "url": "https://hooks.slack.com/services/T000/B000/XXXX"},
    {"name": "on call", "shape": "pagerduty", "key": "0" * 32, "jobs": ["prod-*"], "severity": "critical"},
    {"name": "alertmanager", "shape": "alertmanager_api", "url": "https://alertmanager.example.com/api/v2/alerts"},
]


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


def _worker(request: Request) -> AlertWorker:
    worker: AlertWorker = request.app.state.alerts
    return worker


def _deliveries(request: Request) -> Deliveries:
    return Deliveries(request.app.state.service.database)


DeskOf = Annotated[Desk, Depends(_desk)]
WorkerOf = Annotated[AlertWorker, Depends(_worker)]
DeliveriesOf = Annotated[Deliveries, Depends(_deliveries)]
WebhookId = Annotated[str, Path(alias="id", pattern="^[a-z0-9_]{1,32}$", description="The webhook's `id`.")]
DeliveryId = Annotated[str, Path(alias="id", pattern="^[a-z0-9_]{1,32}$", description="The delivery's `id`.")]


@contextmanager
def _told() -> Iterator[None]:
    """Say what is wrong as the API says it."""
    try:
        yield
    except UnknownEndpointError as error:
        raise ApiError(HTTPStatus.NOT_FOUND, "id", str(error), error.endpoint) from error
    except UnknownDeliveryError as error:
        raise ApiError(HTTPStatus.NOT_FOUND, "id", str(error), error.message) from error
    except (EndpointConflictError, DeliveryStateError, WebhookRuleError) as error:
        rule = isinstance(error, WebhookRuleError)
        problem = named(str(error))
        status = HTTPStatus.UNPROCESSABLE_ENTITY if rule else HTTPStatus.CONFLICT
        raise ApiError(status, problem.field, problem.message) from error


@router.get("/v1/webhooks", responses=MALFORMED, summary="Who is told")
def list_webhooks(desk: DeskOf) -> Webhooks:
    """All of them, by name: there are never more than a page holds."""
    now = desk.clock()
    return Webhooks(webhooks=[webhook_view(each, now) for each in desk.endpoints.all()], next=None)


@router.post(
    "/v1/webhooks", status_code=HTTPStatus.CREATED, responses={**CONFLICT, **MALFORMED}, summary="Tell somebody more"
)
def add_webhook(
    wanted: Annotated[NewWebhook, BodyParameter(examples=NEW)], desk: DeskOf, worker: WorkerOf, principal: PrincipalOf
) -> IssuedWebhook:
    """It is told of what fires already. The secret is in this answer and nowhere else; no answer shows the address's
    path or the key."""
    fields = _fields(wanted, "shape")
    with _told():
        anyio.from_thread.run(partial(desk.checked, wanted.shape, fields, fresh=True))
        endpoint = desk.add(wanted.shape, fields, origin=principal.origin, reason=wanted.reason)
    _wake(worker)
    return _issued(endpoint, desk)


@router.get("/v1/webhooks/{id}", responses={**NOT_FOUND, **MALFORMED}, summary="One webhook")
def get_webhook(webhook_id: WebhookId, desk: DeskOf) -> WebhookView:
    """Without its credentials."""
    with _told():
        return webhook_view(desk.endpoints.get(webhook_id), desk.clock())


@router.patch("/v1/webhooks/{id}", responses={**NOT_FOUND, **CONFLICT, **MALFORMED}, summary="Change a webhook")
def change_webhook(
    webhook_id: WebhookId,
    wanted: Annotated[WebhookPatch, BodyParameter(examples=[{"severity": "critical", "reason": "too much"}])],
    desk: DeskOf,
    worker: WorkerOf,
    principal: PrincipalOf,
) -> WebhookView:
    """What was told to fire is told as resolved, whatever is changed meanwhile. Disabling it gives up what is on its
    way."""
    fields = _fields(wanted)
    with _told():
        shape = desk.endpoints.get(webhook_id).shape
        anyio.from_thread.run(partial(desk.checked, shape, fields, fresh=False))
        changed = desk.change(webhook_id, fields, origin=principal.origin, reason=wanted.reason)
    _wake(worker)
    return webhook_view(changed, desk.clock())


@router.delete("/v1/webhooks/{id}", responses={**NOT_FOUND, **MALFORMED}, summary="Tell somebody no more")
def remove_webhook(
    webhook_id: WebhookId, desk: DeskOf, principal: PrincipalOf, reason: Annotated[Why, Query()] = ""
) -> WebhookView:
    """With everything that was on its way, and what is known of what was delivered. To pause it, disable it."""
    with _told():
        last = webhook_view(desk.endpoints.get(webhook_id), desk.clock())
        desk.endpoints.remove(webhook_id, now=desk.clock(), origin=principal.origin, reason=reason)
    return last


@router.post("/v1/webhooks/{id}/rotate", responses={**NOT_FOUND, **MALFORMED}, summary="A new secret")
def rotate_webhook(
    webhook_id: WebhookId,
    rotation: Annotated[Rotation, BodyParameter(examples=[{"overlap": 3600}])],
    desk: DeskOf,
    principal: PrincipalOf,
) -> IssuedWebhook:
    """Messages carry a signature of either for a while, so receivers can change over in their own time."""
    with _told():
        changed = desk.rotate(webhook_id, overlap=rotation.overlap, origin=principal.origin, reason=rotation.reason)
    return _issued(changed, desk)


@router.post("/v1/webhooks/{id}/test", responses={**NOT_FOUND, **CONFLICT, **MALFORMED}, summary="Send a test")
def test_webhook(webhook_id: WebhookId, worker: WorkerOf, deliveries: DeliveriesOf) -> Trial:
    """Takes the way of every message, is tried once, and answers when that is over, or after 8 s: then the
    list of deliveries tells the rest. Where what fires stays open at the receiver, the end of the test follows."""
    with _told():
        sent = worker.trial(webhook_id)
    _wake(worker)
    until = time.monotonic() + TRIAL_S
    while time.monotonic() < until:
        sent = [deliveries.get(each.message_id) for each in sent]
        if all(each.status is not Status.PENDING for each in sent):
            break
        time.sleep(TRIAL_POLL_S)
    return Trial(deliveries=[delivery_view(each) for each in sent])


@router.get("/v1/webhooks/{id}/deliveries", responses={**NOT_FOUND, **MALFORMED}, summary="What it was sent")
def list_deliveries(
    webhook_id: WebhookId,
    deliveries: DeliveriesOf,
    cursor: CursorOf,
    limit: Limit = PAGE,
    status: Annotated[Status | None, Query(description="Only those of which this became.")] = None,
) -> DeliveryPage:
    """The newest first. What was delivered is kept for a week, what died for a month."""
    with _told():
        found = deliveries.page(webhook_id, before=cursor, limit=limit + 1, status=status)
    page, following = paged(found, limit, cursor=lambda one: one.number)
    return DeliveryPage(deliveries=[delivery_view(each) for each in page], next=following)


@router.post("/v1/deliveries/{id}/retry", responses={**NOT_FOUND, **CONFLICT, **MALFORMED}, summary="Send it again")
def retry_delivery(
    delivery_id: DeliveryId,
    asked: Annotated[Reasoned, BodyParameter(examples=[{"reason": "the receiver is mended"}])],
    desk: DeskOf,
    deliveries: DeliveriesOf,
    worker: WorkerOf,
    principal: PrincipalOf,
) -> DeliveryView:
    """A message that died, as it was then and under its own id, from the first attempt on."""
    with _told():
        again = deliveries.retry(delivery_id, desk.clock(), origin=principal.origin, reason=asked.reason)
    _wake(worker)
    return delivery_view(again)


def _fields(wanted: NewWebhook | WebhookPatch, *without: str) -> dict[str, Any]:
    """What was given: of the rest, the shape or what there is decides. Only reminders can be null, for none."""
    given = {name: getattr(wanted, name) for name in wanted.model_fields_set - {"reason", *without}}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if value is not None or name == "repeat_interval"
    }


def _wake(worker: AlertWorker) -> None:
    anyio.from_thread.run_sync(worker.wake)


def _issued(endpoint: Endpoint, desk: Desk) -> IssuedWebhook:
    return IssuedWebhook(
        secret=endpoint.secret if signs(endpoint) else None, webhook=webhook_view(endpoint, desk.clock())
    )
