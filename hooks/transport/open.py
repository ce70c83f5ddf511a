"""Make the transport that a URL names."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from trimtab.hooks.transport.base import Transport
from trimtab.hooks.transport.memory import MemoryTransport

OPENERS: dict[str, Callable[[str], Transport]] = {
    "memory": lambda _url: MemoryTransport(),
}
"""One line a scheme."""


def open_transport(url: str) -> Transport:
    """The transport of `url`.

    Raises:
        ValueError: no transport has the URL's scheme.
    """
    scheme = urlsplit(url).scheme
    if scheme not in OPENERS:
        raise ValueError(f"url: {url!r} starts with none of {', '.join(f'{name}:' for name in OPENERS)}")
    return OPENERS[scheme](url)
