"""How often one token, or one address, may ask: token buckets in memory, each process its own."""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_KEYS = 10_000
"""Buckets that are kept; those that have filled up again, and so say nothing, go first."""


class LimitError(ValueError):
    """A limit that is none; the message says how to write one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many a second in the long run, and `burst` at once."""

    per_second: float
    burst: int

    @classmethod
    def parse(cls, text: str) -> Rate:
        """The rate that `RATE/BURST` says, such as `50/200`. Raises `LimitError`."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)/(\d+)", text)
        if match is None or not float(match[1]) or not int(match[2]):
            raise LimitError(f"{text!r} is no limit; give requests a second and how many at once, such as 50/200")
        return cls(per_second=float(match[1]), burst=int(match[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a service allows."""

    ingest: Rate = field(default_factory=lambda: Rate(per_second=50, burst=200))
    """Requests with summaries, by token."""
    control: Rate = field(default_factory=lambda: Rate(per_second=1, burst=10))
    """Requests that change something else, by token."""
    failures: Rate = field(default_factory=lambda: Rate(per_second=5 / 60, burst=5))
    """Tokens that are none, by address."""


class Limiter:
    """A bucket for each key, full at first. To be used from one thread."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """By key, what was left in its bucket and when."""

    def take(self, key: str) -> float:
        """Take one: 0, or the seconds until there is one to take."""
        now = self._clock()
        left = self._left(self._buckets.get(key), now)
        if left < 1:
            return (1 - left) / self.rate.per_second
        if key not in self._buckets and len(self._buckets) >= MAX_KEYS:
            self._make_room(now)
        self._buckets[key] = (left - 1, now)
        return 0.0

    def _left(self, bucket: tuple[float, float] | None, now: float) -> float:
        if bucket is None:
            return float(self.rate.burst)
        left, at = bucket
        return min(left + max(now - at, 0.0) * self.rate.per_second, float(self.rate.burst))

    def _make_room(self, now: float) -> None:
        """Forget the full buckets, and where there are none, the one that was used least recently."""
        full = [key for key, bucket in self._buckets.items() if self._left(bucket, now) >= self.rate.burst]
        for key in full or [min(self._buckets, key=lambda key: self._buckets[key][1])]:
            del self._buckets[key]


def neighbourhood(ip: str) -> str:
    """The address that failures are counted for: of IPv6 the first half, since one customer holds all of the rest."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return ip
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else ip
