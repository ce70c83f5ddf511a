"""Serving the app on a loopback port: in the foreground for `trimtab serve`, in a thread for everybody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from trimtab.api.app import create_app
from trimtab.api.errors import UserError
from trimtab.api.guard import is_loopback
from trimtab.api.service import Service

DEFAULT_PORT = 8787


class BindError(UserError):
    """The address cannot be listened on; the message says why and what to do."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        BindError: the host is not a loopback address, or the port is taken.
    """
    if not is_loopback(host):
        raise BindError(
            f"host: {host!r} can be reached by others, and the service has no access tokens yet; use 127.0.0.1, and "
            "reach it from another machine through an SSH tunnel"
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


def url_of(listener: socket.socket) -> str:
    """Where the socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(service: Service, listener: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Serve until a signal ends it; `on_ready` gets the address once requests are answered."""
    _Server(service, on_ready=lambda: on_ready(url_of(listener))).run(sockets=[listener])


@contextmanager
def running(service: Service, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve in a thread while the block runs; gives the address. Raises `BindError`."""
    listener = bind(host, port)
    ready = threading.Event()
    server = _Server(service, on_ready=ready.set)
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
    def __init__(self, service: Service, on_ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(create_app(service), log_level="warning", access_log=False, timeout_graceful_shutdown=5)
        )
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets=sockets)
        self._on_ready()
