"""Webhooks, and what became of the messages to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.api.client.base import Caller, api_path
from trimtab.api.routes.webhook_views import (
    DeliveryPage,
    DeliveryView,
    IssuedWebhook,
    Trial,
    Webhooks,
    WebhookView,
)


class WebhookCalls(Caller):
    """Who is told; for tokens with the scope admin."""

    def webhooks(self) -> list[WebhookView]:
        """Every webhook, by name."""
        return self._ask(Webhooks, "GET", "/v1/webhooks").webhooks

    def webhook(self, id: str) -> WebhookView:
        """One webhook."""
        return self._ask(WebhookView, "GET", api_path("webhooks", id))

    def add_webhook(self, name: str, shape: str, **wanted: Any) -> IssuedWebhook:
        """Tell somebody more; `wanted` are the other fields of `NewWebhook`. The secret is shown this once."""
        return self._ask(IssuedWebhook, "POST", "/v1/webhooks", {"name": name, "shape": shape, **wanted})

    def change_webhook(self, id: str, **changes: Any) -> WebhookView:
        """Change fields of a webhook, those of `WebhookPatch`."""
        return self._ask(WebhookView, "PATCH", api_path("webhooks", id), changes)

    def remove_webhook(self, id: str, *, reason: str = "") -> WebhookView:
        """Tell somebody no more."""
        return self._ask(WebhookView, "DELETE", api_path("webhooks", id), params={"reason": reason})

    def rotate_webhook(self, id: str, *, overlap: float | None = None, reason: str = "") -> IssuedWebhook:
        """Give a webhook a new secret; for `overlap` seconds, a day unless said otherwise, the old one signs too."""
        body = {"reason": reason} | ({} if overlap is None else {"overlap": overlap})
        return self._ask(IssuedWebhook, "POST", api_path("webhooks", id, "rotate"), body)

    def test_webhook(self, id: str) -> list[DeliveryView]:
        """Send a test, and wait a few seconds for what becomes of it."""
        return self._ask(Trial, "POST", api_path("webhooks", id, "test")).deliveries

    def deliveries(self, id: str, *, status: str | None = None) -> Iterator[DeliveryView]:
        """Messages to a webhook, the newest first, page by page; only those of which `status` became, if given."""
        for page in self._pages(DeliveryPage, api_path("webhooks", id, "deliveries"), {"status": status}):
            yield from page.deliveries

    def retry_delivery(self, id: str, *, reason: str = "") -> DeliveryView:
        """Send a message that died again."""
        return self._ask(DeliveryView, "POST", api_path("deliveries", id, "retry"), {"reason": reason})
