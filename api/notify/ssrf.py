"""Which addresses that users gave may be sent to: the rules against server-side request forgery.

After the OWASP cheat sheet on SSRF (case 2) and the advice of Standard Webhooks. They are kept by
`trimtab.api.notify.posting`, which connects to no address that was not checked here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PORTS = {"https": 443, "http": 80}
MAX_URL = 2048
METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
"""Where clouds hand out credentials to whoever asks from inside."""
METADATA_ADDRESSES = frozenset(
    map(ipaddress.ip_address, ("169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "fd00:ec2::254"))
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
"""Labels of 1 to 63 letters, as resolvers take them (RFC 1035)."""
_NUMERIC = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)")
_HTTP_FLAG = "--allow-http-webhooks"
_PRIVATE_FLAG = "--allow-private-webhooks"


class RefusedError(ValueError):
    """An address that nothing is sent to; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the administrator allows, and how long a receiver may take."""

    http: bool = False
    """Also without TLS."""
    private: tuple[Network, ...] = ()
    """Networks that are reached although they are not public, and on any port."""
    proxy: str = ""
    """URL of an egress proxy; empty for none."""
    connect_s: float = 5.0
    total_s: float = 15.0
    """For a request and its answer."""
    max_body: int = 4096
    """Bytes of an answer that are read."""

    def allows(self, address: Address) -> bool:
        """Whether it lies in a network that the administrator allowed."""
        return any(address in network for network in self.private)


def parsed(text: str, policy: Policy) -> httpx.URL:
    """The URL, if nothing in it forbids to send anything there.

    Raises:
        RefusedError: it is none, or holds something that it must not.
    """
    if len(text) > MAX_URL:
        raise RefusedError(f"it is longer than {MAX_URL} characters")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise RefusedError(f"it is no URL: {error}") from error
    if url.scheme not in PORTS:
        raise RefusedError("it must begin with https://")
    if url.scheme == "http" and not policy.http:
        raise RefusedError(f"it is not encrypted; give an https:// address, or start the service with {_HTTP_FLAG}")
    if url.userinfo:
        raise RefusedError("it holds a user name or a password; leave them out")
    if url.fragment:
        raise RefusedError("it holds a fragment (#...), which is never sent; leave it out")
    _check_host(url, policy)
    return url


def _check_host(url: httpx.URL, policy: Policy) -> None:
    host = host_of(url).lower().removesuffix(".")
    address = literal(host)
    if address is not None:
        check_address(address, policy)
    elif not _NAME.fullmatch(host):
        raise RefusedError(f"{host!r} is no name of a host")
    elif _NUMERIC.fullmatch(host.rpartition(".")[2]):
        raise RefusedError(f"{host!r} is a number that some programs take for an address; write it as four numbers")
    elif host in METADATA_NAMES:
        raise RefusedError(f"{host!r} hands out a cloud's credentials")
    if url.port is not None and (url.port == 0 or not policy.private):
        # Other services of a public host are none of ours; in an intranet receivers listen where they like.
        raise RefusedError(f"port {url.port} is not the one of {url.scheme}; leave it out, or see {_PRIVATE_FLAG}")


def host_of(url: httpx.URL) -> str:
    """The name, as it is resolved, or the address without brackets."""
    return url.raw_host.decode("ascii")


def port_of(url: httpx.URL) -> int:
    """The port, which is the scheme's own where it is left out."""
    return PORTS[url.scheme] if url.port is None else url.port


def check_addresses(host: str, port: int, addresses: Sequence[str], policy: Policy) -> None:
    """Raise `RefusedError` unless every address that a host has may be reached on this port."""
    if not addresses:
        raise RefusedError(f"{host!r} has no address")
    found = [ipaddress.ip_address(text) for text in addresses]
    for address in found:
        check_address(address, policy)
    if port not in PORTS.values() and not all(policy.allows(unwrapped(address)) for address in found):
        raise RefusedError(f"port {port} of {host!r} is reached in the networks of {_PRIVATE_FLAG} alone")


def check_address(address: Address, policy: Policy) -> None:
    """Raise `RefusedError` unless the address is public or allowed."""
    inner = unwrapped(address)
    if inner in METADATA_ADDRESSES:
        raise RefusedError(f"{address} hands out a cloud's credentials")
    if not policy.allows(inner) and not _is_public(inner):
        raise RefusedError(
            f"{address} is not a public address; if it is yours, start the service with {_PRIVATE_FLAG} and its network"
        )


def unwrapped(address: Address) -> Address:
    """The IPv4 address that is reached by an IPv6 address, where there is one (mapped, 6to4, NAT64, compatible)."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and (address in _NAT64 or (address in _COMPATIBLE and int(address) > 1)):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address if inner is None else inner


def _is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast:
        return False
    return isinstance(address, ipaddress.IPv4Address) or address in _UNICAST


def literal(host: str) -> Address | None:
    """The address that the host is; None for a name, and for an address with a zone, which is not public."""
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None
