"""What an emitter needs of a transport."""

from __future__ import annotations

from typing import Protocol

from trimtab.hooks.layout import Report
from trimtab.hooks.records import Command


class UrlError(ValueError):
    """A URL that leads to no agent and no recording; the message names it and what it lacks."""


class TokenError(ValueError):
    """A token that cannot be sent; the message does not tell it."""


class Transport(Protocol):
    """Carries summaries to an agent and its newest command back.

    `send` returns at once and never waits for a network or a disk, but for a transport that says so. Nothing here
    raises for what an agent or a disk does; what is lost is counted.
    """

    @property
    def dropped(self) -> int:
        """Summaries lost so far."""
        ...

    def send(self, report: Report) -> None:
        """Take one summary; who needs it makes it whole."""
        ...

    def ask(self, report: Report, timeout: float) -> bool:
        """Have the agent answer a summary that was sent before once more, and wait for at most `timeout` seconds;
        whether an agent answered. Nothing is kept for later, and nothing counted as lost."""
        ...

    def command(self) -> Command | None:
        """The newest command received, or None before the first."""
        ...

    def forget_command(self) -> None:
        """Let go of that command: from here on only one that is received later counts."""
        ...

    def flush(self, timeout: float) -> None:
        """Deliver what is pending, or write it to disk, for at most `timeout` seconds, and stay open."""
        ...

    def close(self, timeout: float) -> None:
        """Deliver what is pending, for at most `timeout` seconds, and let go of every resource."""
        ...
