"""What was seen of a job: signals and events, and what is new, live."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.agent.state import EventKind
from trimtab.api.client.base import Caller, job_path
from trimtab.api.routes.events import EventPage
from trimtab.api.routes.signals import Signals
from trimtab.storage.values import StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One message of the live stream."""

    kind: str
    """`ready`, `summary`, `event` or `job`; see `GET /v1/stream`."""
    data: dict[str, Any]


class ReadingCalls(Caller):
    """What was seen of a job, and what is new."""

    def signals(
        self, job: str, names: Sequence[str] | None = None, *, attempt: int | None = None, points: int = 500
    ) -> Signals:
        """Signals of one attempt over its steps; all of them, of the newest attempt, unless said otherwise."""
        params = {"points": points, "name": None if names is None else list(names), "attempt": attempt}
        return self._ask(Signals, "GET", job_path(job, "signals"), params=params)

    def events(self, job: str, *, after: int = 0, kinds: Sequence[EventKind | str] = ()) -> Iterator[StoredEvent]:
        """The audit trail of a job with numbers larger than `after`, page by page; only of these kinds, if any."""
        for page in self._pages(EventPage, job_path(job, "events"), {"cursor": after, "kind": list(kinds)}):
            yield from page.events

    def follow(self, job: str, *, after: int = 0, kinds: Sequence[EventKind | str] = ()) -> Iterator[StoredEvent]:
        """As `events`, and then those that come, for good. Raises `ClientError` once the service is gone."""
        while True:  # a stream ends now and then
            for news in self.watch(job):
                if news.kind in ("ready", "event"):
                    for event in self.events(job, after=after, kinds=kinds):
                        yield event
                        after = event.number

    def watch(self, job: str | None = None) -> Iterator[News]:
        """What is new of a job, or of all, as it comes. The first is `ready`: from there on nothing is missed."""
        found: dict[str, str] = {}
        for line in self._lines("/v1/stream", {"job": job}):
            name, _, value = line.partition(":")
            if name:
                found[name] = value.strip()
            elif found:
                if "data" in found:
                    yield News(kind=found.get("event", ""), data=json.loads(found["data"]))
                found = {}
