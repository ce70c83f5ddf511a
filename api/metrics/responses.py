"""Counts every answer of the app, whoever gave it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.api.metrics.process import ProcessMetrics


class CountedResponses:
    """Middleware that stands before all others, so that what they refuse is counted too."""

    def __init__(self, app: ASGIApp, metrics: ProcessMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and look at the status."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(message["status"])
            await send(message)

        await self._app(scope, receive, counted)
