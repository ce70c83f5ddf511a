"""Webhooks as they are asked for and shown. Credentials go in, and never come out again."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictBool
from pydantic_core import PydanticCustomError

from trimtab.api.notify.shapes import SHAPES
from trimtab.api.notify.ssrf import MAX_URL
from trimtab.api.routes.paging import Page
from trimtab.api.views import Body, View
from trimtab.storage.alert import AlertKind, Severity
from trimtab.storage.delivery import Delivery, Status
from trimtab.storage.endpoints import Endpoint

_TEXT = r"^[^\x00-\x1f\x7f]*$"
_GLOB = r"^[A-Za-z0-9_.\-*?\[\]!]{1,128}$"
HOUR_S, WEEK_S = 3600, 7 * 86400


def _known(shape: str) -> str:
    if shape not in SHAPES:
        raise PydanticCustomError("shape", f"is no shape; shapes: {', '.join(SHAPES)}")
    return shape


def _different(items: list[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


Name = Annotated[str, Field(min_length=1, max_length=64, pattern=_TEXT, description="What it is called.")]
ShapeName = Annotated[
    str, AfterValidator(_known), Field(description="What it takes.", json_schema_extra={"enum": list(SHAPES)})
]
Url = Annotated[str, Field(min_length=1, max_length=MAX_URL, pattern=_TEXT, description="Where it is reached.")]
Key = Annotated[str, Field(pattern="^[0-9A-Za-z]{32}$", description="PagerDuty's routing key.")]
Globs = Annotated[
    list[Annotated[str, Field(pattern=_GLOB)]],
    Field(min_length=1, max_length=50, description="Jobs that it is told of: names, with `*`, `?` and `[...]`."),
]
Kinds = Annotated[list[AlertKind], AfterValidator(_different), Field(min_length=1, description="What it is told of.")]
Least = Annotated[Severity, Field(description="The least that it is told of.")]
Wait = Annotated[float, Field(strict=True, ge=0, le=HOUR_S, description="Seconds from a change until it is told.")]
Interval = Annotated[
    float, Field(strict=True, ge=1, le=86400, description="Least seconds between two messages on one job.")
]
Repeat = Annotated[float, Field(strict=True, ge=10, le=WEEK_S)]
REPEAT = "Seconds after which what still fires is told again; null for never."
Why = Annotated[str, Field(max_length=1000, pattern=_TEXT, description="Why, for the audit log.")]


class NewWebhook(Body):
    """Somebody who is to be told. What is left out is what the shape makes sense with."""

    name: Name
    shape: ShapeName
    url: Url | None = Field(default=None, description="Where it is reached; PagerDuty's address when missing.")
    key: Key | None = None
    jobs: Globs | None = None
    severity: Least | None = None
    kinds: Kinds | None = None
    group_wait: Wait | None = None
    group_interval: Interval | None = None
    repeat_interval: Repeat | None = Field(default=None, description=REPEAT)
    send_resolved: StrictBool = Field(default=True, description="Whether it is told that something is over.")
    reason: Why = ""


class WebhookPatch(Body):
    """What is to be different; what is left out stays. The shape cannot change."""

    name: Name | None = None
    url: Url | None = None
    key: Key | None = None
    jobs: Globs | None = None
    severity: Least | None = None
    kinds: Kinds | None = None
    group_wait: Wait | None = None
    group_interval: Interval | None = None
    repeat_interval: Repeat | None = Field(default=None, description=REPEAT)
    send_resolved: StrictBool | None = None
    enabled: StrictBool | None = Field(default=None, description="When it is again, it is told of what fires then.")
    reason: Why = ""


class Rotation(Body):
    """How the secret is replaced."""

    overlap: Annotated[float, Field(strict=True, ge=0, le=WEEK_S)] = Field(
        default=86400.0, description="Seconds for which messages are signed with the old secret too."
    )
    reason: Why = ""


class Reasoned(Body):
    """Why."""

    reason: Why = ""


class WebhookView(View):
    """One webhook, without its credentials. Times are Unix seconds, intervals seconds."""

    id: str
    name: str
    shape: str
    url: str = Field(description="Without its path, which may be a credential.")
    jobs: list[str]
    severity: Severity
    kinds: list[AlertKind]
    group_wait: float
    group_interval: float
    repeat_interval: float | None = Field(description=REPEAT)
    send_resolved: bool
    enabled: bool
    disabled_reason: str
    created_at: float
    old_secret_until: float | None = Field(description="Until when messages are signed with the old secret too.")


class Webhooks(Page):
    """Every webhook, by name; all of them are on one page."""

    webhooks: list[WebhookView]


class IssuedWebhook(View):
    """A webhook with its secret, which is told once."""

    secret: str | None = Field(
        description="Whoever has it can tell our messages from others; null for shapes whose receivers cannot check."
    )
    webhook: WebhookView


class DeliveryView(View):
    """One message. Times are Unix seconds."""

    id: str = Field(description="The `webhook-id`, the same on every attempt.")
    webhook: str
    job: str | None = Field(description="Null for a test.")
    reason: str
    status: Status
    attempts: int
    created_at: float
    next_at: float | None = Field(description="When it is tried next; null once it is not.")
    settled_at: float | None
    answer: int | None = Field(description="HTTP status of the last attempt; null without an answer.")
    error: str = Field(description="What was wrong with the last attempt.")


class DeliveryPage(Page):
    """Messages to one webhook, the newest first."""

    deliveries: list[DeliveryView]


class Trial(View):
    """What became of a test."""

    deliveries: list[DeliveryView]


def webhook_view(endpoint: Endpoint, now: float) -> WebhookView:
    """A webhook as it is shown."""
    scheme, _, rest = endpoint.url.partition("://")
    two = endpoint.previous_until is not None and now < endpoint.previous_until
    return WebhookView(
        id=endpoint.id,
        name=endpoint.name,
        shape=endpoint.shape,
        url=f"{scheme}://{rest.partition('/')[0].partition('?')[0]}/...",
        jobs=list(endpoint.jobs),
        severity=endpoint.severity,
        kinds=list(endpoint.kinds),
        group_wait=endpoint.timing.group_wait,
        group_interval=endpoint.timing.group_interval,
        repeat_interval=endpoint.timing.repeat_interval,
        send_resolved=endpoint.send_resolved,
        enabled=endpoint.enabled,
        disabled_reason=endpoint.disabled_reason,
        created_at=endpoint.created_at,
        old_secret_until=endpoint.previous_until if two else None,
    )


def delivery_view(delivery: Delivery) -> DeliveryView:
    """A message as it is shown."""
    same = ("job", "reason", "status", "attempts", "created_at", "next_at", "settled_at", "answer", "error")
    fields = {name: getattr(delivery, name) for name in same}
    return DeliveryView(id=delivery.message_id, webhook=delivery.endpoint_id, **fields)
