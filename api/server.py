"""Serving the app: in the foreground for `trimtab serve`, in a thread for everybody else.

Only this machine can reach it, until there is a token that lets somebody in who can mend things.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from trimtab.api.access.doorman import AccessSettings
from trimtab.api.access.redaction import handlers_in_use, redact_logs
from trimtab.api.access.scopes import Scope
from trimtab.api.app import create_app
from trimtab.api.errors import UserError
from trimtab.api.guard import is_loopback
from trimtab.api.notify.settings import AlertSettings
from trimtab.api.retention import Keep
from trimtab.api.service import Service
from trimtab.storage.database import Database
from trimtab.storage.tokens import Tokens

DEFAULT_PORT = 8787


class BindError(UserError):
    """The address cannot be listened on; the message says why and what to do."""


def bind(host: str, port: int, database: Database) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        BindError: the host can be reached by others and the database has no admin's token; or the port is taken.
    """
    if not is_loopback(host) and not _has_admin(database):
        raise BindError(
            f"host: {host!r} can be reached by others, and {database.name} has no admin's token that is valid; make "
            f"one with `trimtab token create NAME --scope admin --db {database.name}`, or use 127.0.0.1 and reach it "
            "from another machine through an SSH tunnel"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise BindError(f"port: cannot listen on {host}:{port} ({error.strerror}); give another, or 0") from error
    return listener


def _has_admin(database: Database) -> bool:
    now = time.time()
    return any(Scope.ADMIN in token.scopes and token.valid(now) for token in Tokens(database).all())


def url_of(listener: socket.socket) -> str:
    """Where the socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    service: Service,
    listener: socket.socket,
    on_ready: Callable[[str], None],
    *,
    access: AccessSettings | None = None,
    alerts: AlertSettings | None = None,
    keep: Keep | None = None,
    trusted_proxies: Sequence[str] = (),
) -> None:
    """Serve until a signal ends it; `on_ready` gets the address once requests are answered.

    Where a request comes from, and by which scheme, is taken from the headers of `trusted_proxies` (addresses) alone.
    """
    server = _Server(
        create_app(service, access, alerts, keep),
        on_ready=lambda: on_ready(url_of(listener)),
        trusted_proxies=trusted_proxies,
    )
    redact_logs(handlers_in_use())  # uvicorn has made its own by now
    server.run(sockets=[listener])


@contextmanager
def running(
    service: Service,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    access: AccessSettings | None = None,
    alerts: AlertSettings | None = None,
) -> Iterator[str]:
    """Serve in a thread while the block runs; gives the address. Raises `BindError`."""
    listener = bind(host, port, service.database)
    ready = threading.Event()
    server = _Server(create_app(service, access, alerts), on_ready=ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="trimtab-service", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


class _Server(uvicorn.Server):
    def __init__(self, app: FastAPI, on_ready: Callable[[], None], trusted_proxies: Sequence[str] = ()) -> None:
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=5,
            server_header=False,
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
        )
        super().__init__(config)
        self._app = app
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets=sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, which would go on for good, and then everything else."""
        self._app.state.hub.close()
        await super().shutdown(sockets=sockets)
