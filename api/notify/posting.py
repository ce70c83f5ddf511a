"""Requests to addresses that users gave, without reaching what they must not.

A URL is parsed once, by the library that is then used. Its name is resolved here, to all of its addresses, and every
one must be public or in a network that the administrator allowed; the connection is made to one of those very
addresses, so a name that answers differently the second time (DNS rebinding) changes nothing. TLS and the Host header
keep the name. Redirects are not followed, an answer is read up to 4 KB, and everything together takes 15 s at most,
however slowly it comes. With an egress proxy (Stripe's smokescreen, for one) names are resolved, and addresses judged,
by the proxy.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpcore
import httpx

from trimtab.api.notify.ssrf import Policy, RefusedError, check_addresses, host_of, literal, parsed, port_of

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""From a name and a port to addresses; raises `OSError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a receiver answered."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    """Its first bytes."""


_RESOLVERS = ThreadPoolExecutor(16, thread_name_prefix="trimtab-dns")
"""Threads of their own: a resolver that hangs must not take those away from which the database is asked."""


async def resolved(host: str, port: int) -> list[str]:
    """All addresses of a name, as the system's resolver gives them."""
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_RESOLVERS, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def checked_addresses(host: str, port: int, policy: Policy, resolve: Resolve) -> list[str]:
    """All addresses of a host, every one of which may be reached.

    Raises:
        RefusedError: one of them may not, or there is none. OSError: the name cannot be resolved.
    """
    try:
        addresses = [host] if literal(host) is not None else await resolve(host, port)
    except UnicodeError as error:  # what the resolver says of a name that it cannot even ask for
        raise RefusedError(f"{host!r} is no name of a host: {error}") from error
    check_addresses(host, port, addresses, policy)
    return addresses


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Resolves, checks and connects in one step: what is connected to is what was checked."""

    def __init__(self, policy: Policy, resolve: Resolve = resolved) -> None:
        self._policy, self._resolve = policy, resolve
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to the first of the host's addresses that takes one."""
        addresses = await checked_addresses(host, port, self._policy, self._resolve)
        failure: Exception | None = None
        for address in addresses:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        assert failure is not None
        raise failure


class Poster:
    """Sends requests under a policy. Use it as an asynchronous context manager."""

    def __init__(
        self, policy: Policy, *, resolve: Resolve = resolved, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self.policy, self._resolve = policy, resolve
        # No limit on connections, so that slow receivers hold up nobody else; endpoints are counted elsewhere.
        trusted = httpx.create_ssl_context() if ssl_context is None else ssl_context
        options: dict[str, Any] = {"ssl_context": trusted, "max_connections": None, "max_keepalive_connections": 0}
        self._pool: httpcore.AsyncConnectionPool
        if policy.proxy:
            self._pool = httpcore.AsyncHTTPProxy(policy.proxy, **options)
        else:
            self._pool = httpcore.AsyncConnectionPool(network_backend=CheckedBackend(policy, resolve), **options)

    async def __aenter__(self) -> Poster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.aclose()

    async def check(self, text: str) -> None:
        """Raise `RefusedError` where a request would be refused; a name that cannot be resolved now is not."""
        url = parsed(text, self.policy)
        if self.policy.proxy:
            return
        try:
            async with asyncio.timeout(self.policy.connect_s):
                await checked_addresses(host_of(url), port_of(url), self.policy, self._resolve)
        except (OSError, TimeoutError):
            return

    async def post(self, text: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send JSON and read the beginning of the answer.

        Raises:
            RefusedError: nothing is sent there. TimeoutError: it took too long. OSError: it cannot be reached, or says
                what is no HTTP.
        """
        url = parsed(text, self.policy)
        sent = {"host": url.netloc.decode("ascii"), "accept-encoding": "identity", "user-agent": "trimtab"}
        sent |= {"content-type": "application/json", "content-length": str(len(body)), **headers}
        target = httpcore.URL(scheme=url.raw_scheme, host=host_of(url).encode(), port=port_of(url), target=url.raw_path)
        try:
            async with asyncio.timeout(self.policy.total_s):
                return await self._exchanged(target, body, sent)
        except httpcore.TimeoutException as error:
            raise TimeoutError(str(error)) from error
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, ssl.SSLError) as error:
            raise OSError(str(error) or type(error).__name__) from error

    async def _exchanged(self, target: httpcore.URL, body: bytes, headers: Mapping[str, str]) -> Answer:
        timeouts = {"connect": self.policy.connect_s, "read": self.policy.total_s, "write": self.policy.total_s}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        stream = self._pool.stream("POST", target, headers=pairs, content=body, extensions={"timeout": timeouts})
        async with stream as response:
            read = bytearray()
            async for chunk in response.aiter_stream():
                read += chunk
                if len(read) >= self.policy.max_body:
                    break
            named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            return Answer(status=response.status, headers=named, body=bytes(read[: self.policy.max_body]))
