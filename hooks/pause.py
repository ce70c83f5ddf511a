"""How a trainer waits at the end of a step while the control `paused` is on.

It asks the agent again and again by sending the last summary once more: a summary that was seen before changes nothing,
and the answer carries what is wanted now. The wait ends when the agent says so, when it has lasted as long as is
allowed, or when the agent has not answered so many times in a row: an absent agent never stops a run. `paused` is then
refused until it has been lifted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from trimtab.hooks.guard import Guard
from trimtab.hooks.layout import Report
from trimtab.hooks.overlay import Overlay
from trimtab.hooks.transport.base import Transport


class PauseError(ValueError):
    """A patience that cannot be; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """For how long a trainer waits.

    Raises:
        PauseError: a time that is not a finite number of seconds above 0, or fewer than one try.

    >>> Patience(seconds=600).tries
    60
    """

    seconds: float = 3600.0
    """Longest wait."""
    every: float = 1.0
    """Time between two questions, seconds, and the longest that an answer is waited for."""
    tries: int = 60
    """Questions in a row without an answer after which the agent counts as gone."""

    def __post_init__(self) -> None:
        for name in ("seconds", "every"):
            value = getattr(self, name)
            if not (0 < value < math.inf):
                raise PauseError(f"patience.{name}: {value!r} is no finite number of seconds above 0")
        if self.tries < 1:
            raise PauseError(f"patience.tries: {self.tries!r} is fewer than one")


class Pause:
    """One wait.

    Args:
        transport: leads to the agent.
        report: the last step that was sent; None where there was none, and nothing to ask with.
        patience: for how long.
    """

    def __init__(self, transport: Transport, report: Report | None, patience: Patience) -> None:
        self._transport = transport
        self._report = report
        self._patience = patience
        self._until = time.monotonic() + patience.seconds
        self._unanswered = 0
        self._next = 0.0

    def over(self) -> str:
        """Ask once more, when it is time to; why the wait is over whatever the agent says, or nothing."""
        left = self._until - time.monotonic()
        if left <= 0:
            return f"over after {self._patience.seconds:g} s, the longest wait that is allowed"
        time.sleep(min(left, max(0.0, self._next - time.monotonic())))
        self._next = time.monotonic() + self._patience.every
        answered = self._report is not None and self._transport.ask(self._report, self._patience.every)
        self._unanswered = 0 if answered else self._unanswered + 1
        if self._unanswered >= self._patience.tries:
            return f"over, since the agent did not answer {self._unanswered} times in a row"
        return ""


def wait(guard: Guard, overlay: Overlay, *, pausing: Callable[[], bool], ask: Callable[[], str]) -> None:
    """Wait while `pausing` says so; `ask` has the agent asked, and says why the wait is over without it, or nothing."""
    while pausing():
        over = "over, since it failed"
        with guard.swallowing("wait_while_paused"):
            over = ask()
        if over and pausing():
            guard.say(f"the pause is {over}")
            overlay.spend("paused", over)
        overlay.lay()
