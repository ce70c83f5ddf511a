"""What an answer means, and when a message is tried again.

An alert that is hours old is of little use, so the schedule is short: 0, 5 s, 30 s, 2 min, 10 min, 30 min, 2 h, and
then a person decides. Delays are drawn evenly from nothing to the delay (full jitter), so that those who waited for the
same receiver do not come back to it together. A receiver that says when to come back is not asked sooner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from http import HTTPStatus

from trimtab.storage.deliveries import LONGEST_WAIT_S

DELAYS_S = (0.0, 5.0, 30.0, 120.0, 600.0, 1800.0, LONGEST_WAIT_S)
"""Before each attempt."""
TRIES = len(DELAYS_S)
MAX_RETRY_AFTER_S = LONGEST_WAIT_S
"""The longest that a receiver can ask for; an alert does not keep for longer."""
TRANSIENT = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""Refusals that are about the moment and not about the message."""


class Meaning(Enum):
    """What an answer says about its message."""

    DELIVERED = auto()
    LATER = auto()
    """It may be taken at another time."""
    NEVER = auto()
    """It will not be taken."""
    GONE = auto()
    """Nothing will be taken any more."""


def meaning(status: int | None) -> Meaning:
    """What an HTTP status says, None where there was no answer. Only 2xx is success; a redirect is not followed."""
    if status is None:
        return Meaning.LATER
    if 200 <= status < 300:
        return Meaning.DELIVERED
    if status == HTTPStatus.GONE:
        return Meaning.GONE
    final = 400 <= status < 500 and status not in TRANSIENT
    return Meaning.NEVER if final else Meaning.LATER


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When to try again."""

    random: Callable[[], float]
    """Evenly distributed in [0, 1)."""

    def delay(self, attempts: int, retry_after: float | None) -> float:
        """Seconds until the next attempt after `attempts` that failed, of which there were fewer than `TRIES`."""
        return max(self.random() * DELAYS_S[min(attempts, TRIES - 1)], retry_after or 0.0)


def retry_after(header: str | None, now: float) -> float | None:
    """Seconds that the header `Retry-After` asks for, as a number or a date; None where it is absent or neither."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (ValueError, OverflowError, TypeError):
            return None
    return None if math.isnan(seconds) else min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
