"""How long to leave an agent alone that does not answer."""

from __future__ import annotations

import random
from dataclasses import dataclass
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubling waits with jitter, in seconds."""

    first: float = 0.5
    cap: float = 30.0
    longest_asked: float = 300.0
    """Longest wait that an agent may ask for with Retry-After."""

    def wait(self, failures: int, asked: float | None = None) -> float:
        """Seconds to wait after so many failures in a row, at least 1; at least as long as the agent `asked` for."""
        wait = min(self.cap, self.first * 2.0 ** min(failures - 1, 32)) * random.uniform(0.5, 1.0)
        return max(wait, min(asked or 0.0, self.longest_asked))


def retry_after(header: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks for, given as seconds or as an HTTP date; None where it says nothing."""
    if header is None:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        return max(parsedate_to_datetime(header).timestamp() - now, 0.0)
    except ValueError:
        return None
