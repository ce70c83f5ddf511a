"""A typed client of the service, for the command line, the demo and scripts.

Each group of calls has a file; all of them ride on the connection that trainers use (`trimtab.hooks.transport`).
"""

from __future__ import annotations

from trimtab.api.client.access import AccessCalls
from trimtab.api.client.base import DEFAULT_URL, ClientError
from trimtab.api.client.control import ControlCalls
from trimtab.api.client.incidents import IncidentCalls
from trimtab.api.client.jobs import JobCalls
from trimtab.api.client.reading import ReadingCalls
from trimtab.api.client.webhooks import WebhookCalls

__all__ = ["DEFAULT_URL", "Client", "ClientError"]


class Client(JobCalls, ReadingCalls, IncidentCalls, ControlCalls, AccessCalls, WebhookCalls):
    """One service, for one thread at a time. Use it as a context manager, or close it.

    >>> with Client(url) as client:                                             # doctest: +SKIP
    ...     client.patch_controls("run-1", {"centering": True}, reason="try it")
    """
