"""Make the transport that a URL names."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trimtab.hooks.transport.base import Transport, UrlError
from trimtab.hooks.transport.file import FileTransport
from trimtab.hooks.transport.http import HttpTransport
from trimtab.hooks.transport.memory import MemoryTransport

KEPT_IN_MEMORY = 1000
"""Summaries of a run that reports to nobody, which may go on for as long as any other; they are some 14 kB each."""
DEFAULT_SPOOL = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "trimtab" / "spool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where one process reports to, and as what."""

    url: str
    job: str
    rank: int = 0
    token: str | None = None
    """Bearer token for an agent over HTTP; None for that of the environment."""
    spool: str | Path | None = DEFAULT_SPOOL
    """Folder for what an agent over HTTP cannot take now, with a folder inside for each job and rank; None for none."""

    @property
    def path(self) -> str:
        """The URL without its scheme: a path, from which an empty authority (`//`) is taken off.

        Raises:
            UrlError: there is no path.
        """
        path = self.url.partition(":")[2].removeprefix("//")
        if not path:
            raise UrlError(f"url: {self.url!r} names no path")
        return path


def _http(target: Target) -> Transport:
    folder = None
    if target.spool is not None:
        folder = Path(target.spool).expanduser() / target.job / f"rank{target.rank}"
    return HttpTransport(target.url, token=target.token, spool=folder)


def _local(target: Target) -> Transport:
    # By name: the hooks know nothing of the layers above them, and most trainers do not have those installed.
    try:
        module = importlib.import_module("trimtab.api.local")
    except ModuleNotFoundError as error:
        raise UrlError(f"url: {target.url!r} needs the agent in this process: pip install 'trimtab[agent]'") from error
    transport: Transport = module.LocalTransport(target.path, target.job)
    return transport


OPENERS: dict[str, Callable[[Target], Transport]] = {
    "http": _http,
    "https": _http,
    "file": lambda target: FileTransport(target.path),
    "local": _local,
    "memory": lambda _: MemoryTransport(keep=KEPT_IN_MEMORY),
}
"""One line a scheme."""


def open_transport(target: Target) -> Transport:
    """The transport of `target.url`.

    Raises:
        UrlError: no transport has the URL's scheme, it lacks a host or a path, or what it names cannot be opened.
    """
    scheme = target.url.partition(":")[0]
    if scheme not in OPENERS:
        raise UrlError(f"url: {target.url!r} starts with none of {', '.join(f'{name}:' for name in OPENERS)}")
    return OPENERS[scheme](target)
