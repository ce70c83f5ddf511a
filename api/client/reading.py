"""What was seen of a job: signals and events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.api.client.base import Caller, job_path
from trimtab.api.routes.events import EventPage
from trimtab.api.routes.signals import Signals
from trimtab.storage.values import StoredEvent


class ReadingCalls(Caller):
    """What was seen of a job."""

    def signals(
        self, job: str, names: Sequence[str] | None = None, *, attempt: int | None = None, points: int = 500
    ) -> Signals:
        """Signals of one attempt over its steps; all of them, of the newest attempt, unless said otherwise."""
        params = {"points": points, "name": None if names is None else list(names), "attempt": attempt}
        return self._ask(Signals, "GET", job_path(job, "signals"), params=params)

    def events(self, job: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """The audit trail of a job with numbers larger than `after`, page by page."""
        for page in self._pages(EventPage, job_path(job, "events"), {"cursor": after}):
            yield from page.events
