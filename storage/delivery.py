"""Messages on their way, and what becomes of them: values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trimtab.storage.endpoints import Endpoint


class UnknownDeliveryError(LookupError):
    """No delivery has that id."""

    def __init__(self, message: str) -> None:
        super().__init__(f"there is no delivery {message!r}; `trimtab webhook deliveries` shows those that there are")
        self.message = message


class DeliveryStateError(ValueError):
    """A message that cannot be sent as things are; the message begins with the field."""


class Status(StrEnum):
    """What became of a message."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"
    """It is not tried again, unless a person says so."""
    SUPERSEDED = "superseded"
    """A newer message says what it said, and what has changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message that is about to be stored."""

    message_id: str
    """The `webhook-id`."""
    subject: str
    """A newer message on the same subject takes its place until it is delivered."""
    reason: str
    body: str
    """JSON."""
    resolved: tuple[str, ...] = ()
    """Fingerprints that it says are resolved."""
    tries: int
    """Attempts after which it is dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message to one endpoint. Times are Unix seconds."""

    number: int
    message_id: str
    endpoint_id: str
    job: str | None
    """None for a test."""
    subject: str
    reason: str
    body: str
    status: Status
    attempts: int
    tries: int
    """Attempts after which it is dead."""
    created_at: float
    next_at: float | None
    settled_at: float | None
    answer: int | None
    """HTTP status of the last attempt."""
    error: str
    """What was wrong with the last attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A message that this worker, and no other, may send now."""

    endpoint: Endpoint
    delivery: Delivery
    lease: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What an attempt came to."""

    status: Status
    """Pending where it is tried again."""
    answer: int | None
    error: str
    next_at: float | None = None
    """When, where it is tried again."""
    not_before: float | None = None
    """Nothing is sent to the endpoint until then; None where it did not say."""
    disable: str = ""
    """Why the endpoint is disabled; empty where it is not."""
