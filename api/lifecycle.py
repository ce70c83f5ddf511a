"""The web server from its start to its end, as whoever runs it expects of it.

A first SIGTERM or SIGINT ends it in order: it stops listening, answers what it accepted, lets its workers finish, and
the process goes on to its end with status 0. A second one ends the process at once, and so does time: whatever was
acknowledged is stored by then, and whatever was not will be sent again.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from trimtab.api.settings import Settings

ANSWER_S = 5
"""Seconds that requests have to be answered once the server ends."""
END_S = 25.0
"""Seconds that all of the end may take: less than the 30 after which Kubernetes kills."""
KEEP_ALIVE_S = 75
"""Seconds that a connection may be idle: longer than most proxies keep theirs, so that none sends into a closed one,
and longer than most training steps take."""
_log = logging.getLogger("trimtab.api")


class Server(uvicorn.Server):
    """Serves one app."""

    def __init__(self, app: FastAPI, on_ready: Callable[[], None], settings: Settings) -> None:
        config = uvicorn.Config(
            app,
            lifespan="on",
            ws="none",
            log_config=None,  # whoever owns the process decides what becomes of logs
            log_level="warning",
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=ANSWER_S,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
        )
        super().__init__(config)
        self._app = app
        self._on_ready = on_ready
        self._signal = ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets=sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, which would go on for good, and then everything else."""
        _log.info("ends%s", f", as {self._signal} asked for it" if self._signal else "")
        self._app.state.hub.close()
        await super().shutdown(sockets=sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the protocol's
        """Take a signal; nothing may be logged here, where another record may be half written."""
        if self.should_exit:
            os._exit(128 + sig)
        self._signal = signal.Signals(sig).name
        self.should_exit = True
        limit = threading.Timer(END_S, _give_up)
        limit.daemon = True
        limit.start()


def _give_up() -> None:
    """Something hangs, such as a database that does not answer; no thread that waits for it may keep the process."""
    _log.error("has not ended within %.0f s, and is cut off; what was acknowledged is stored", END_S)
    os._exit(1)
