"""The transport of a rank that another one reports for."""

from __future__ import annotations

from trimtab.hooks.layout import Report
from trimtab.hooks.records import Command


class SilentTransport:
    """Takes everything, sends nothing, hears nothing."""

    dropped = 0

    def send(self, report: Report) -> None:
        """Rank 0 sends it."""

    def ask(self, report: Report, timeout: float) -> bool:  # noqa: ARG002 - the protocol's
        """Rank 0 asks."""
        return False

    def command(self) -> Command | None:
        """None: rank 0 hears it."""
        return None

    def forget_command(self) -> None:
        """There is none."""

    def flush(self, timeout: float) -> None:
        """Nothing is pending."""

    def close(self, timeout: float) -> None:
        """Nothing to let go of."""
