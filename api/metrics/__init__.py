"""Prometheus metrics: counted as things happen in this process, read from the store when they are scraped.

Each app has a registry of its own.
"""

from __future__ import annotations

import logging
import threading

from sqlalchemy.exc import DBAPIError

from trimtab.api.metrics.families import Family
from trimtab.api.metrics.jobs import Jobs
from trimtab.api.metrics.process import ProcessMetrics
from trimtab.api.service import Service

_log = logging.getLogger("trimtab.api")


class Metrics(ProcessMetrics):
    """Everything that one app exports."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._jobs = Jobs(service)
        self._scraping = threading.Lock()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format; those of the process alone while the database is away."""
        up = Family("trimtab_database_up", "1 where the database answered this scrape.")
        jobs = ""
        with self._scraping:
            try:
                jobs = self._jobs.text()
            except DBAPIError:
                _log.exception("the database did not answer a scrape")
        up.add("", int(bool(jobs)))
        return self.text() + (up.text() + jobs).encode()
