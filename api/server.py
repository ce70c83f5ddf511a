"""Serving the app: in the foreground for `trimtab serve`, in a thread for everybody else.

Only this machine can reach it, until there is a token that lets somebody in who can mend things.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trimtab.api.access.scopes import Scope
from trimtab.api.app import create_app
from trimtab.api.errors import UserError
from trimtab.api.guard import is_loopback
from trimtab.api.lifecycle import Server
from trimtab.api.service import Service
from trimtab.api.settings import Settings
from trimtab.storage.database import Database
from trimtab.storage.tokens import Tokens

DEFAULT_PORT = 8787


class BindError(UserError):
    """The address cannot be listened on; the message says why and what to do."""


def bind(host: str, port: int, database: Database) -> socket.socket:
    """A socket that is to listen, where nobody can connect to it yet; port 0 takes any free one.

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
    except OSError as error:
        listener.close()
        raise _taken(host, port, error) from error
    return listener


def _taken(host: str, port: int, error: OSError) -> BindError:
    return BindError(f"port: cannot listen on {host}:{port} ({error.strerror}); give another, or 0")


def _has_admin(database: Database) -> bool:
    now = time.time()
    return any(Scope.ADMIN in token.scopes and token.valid(now) for token in Tokens(database).all())


def url_of(listener: socket.socket) -> str:
    """Where the socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    service: Service, listener: socket.socket, on_ready: Callable[[str], None], settings: Settings | None = None
) -> None:
    """Serve until a signal ends it; `on_ready` gets the address once requests are answered.

    Raises:
        BindError: the port was taken after all.
    """
    settings = settings or Settings()
    url = url_of(listener)
    try:
        listener.listen()
    except OSError as error:
        host, port = listener.getsockname()[:2]
        raise _taken(host, port, error) from error
    Server(create_app(service, settings), lambda: on_ready(url), settings).run(sockets=[listener])


@contextmanager
def running(
    service: Service, host: str = "127.0.0.1", port: int = 0, *, settings: Settings | None = None
) -> Iterator[str]:
    """Serve in a thread while the block runs; gives the address. Raises `BindError`."""
    settings = settings or Settings()
    listener = bind(host, port, service.database)
    ready = threading.Event()
    server = Server(create_app(service, settings), ready.set, settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="trimtab-service", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
