"""Prometheus metrics: counted as things happen in this process, read from the store when they are scraped.

Each app has a registry of its own.
"""

from __future__ import annotations

import logging
import threading

from sqlalchemy.exc import DBAPIError

from trimtab.api.ingest import HIGH_WATER, IngestQueue
from trimtab.api.metrics.families import Family
from trimtab.api.metrics.jobs import Jobs
from trimtab.api.metrics.process import ProcessMetrics
from trimtab.api.metrics.store import store_text
from trimtab.api.service import Service

_log = logging.getLogger("trimtab.api")


class Metrics(ProcessMetrics):
    """Everything that one app exports."""

    def __init__(self, service: Service, queue: IngestQueue) -> None:
        super().__init__()
        self.follow("trimtab_ingest_queue_summaries", "Summaries that wait to be stored.", lambda: queue.depth)
        self.follow("trimtab_ingest_queue_limit_summaries", "From how many on no more are taken.", lambda: HIGH_WATER)
        self._service = service
        self._jobs = Jobs(service)
        self._scraping = threading.Lock()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format; those of the process alone while the database is away."""
        up = Family("trimtab_database_up", "1 where the database answered this scrape.")
        read = ""
        with self._scraping:
            try:
                read = self._jobs.text() + store_text(self._service.database, self._service.clock())
            except DBAPIError:
                _log.exception("the database did not answer a scrape")
        up.add("", int(bool(read)))
        return self.text() + (up.text() + read).encode()
