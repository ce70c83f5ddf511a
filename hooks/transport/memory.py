"""A transport that stays inside the process: for tests, notebooks, and agents called in place."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.hooks.layout import Report
from trimtab.hooks.records import Command, StepSummary


class MemoryTransport:
    """Keeps the last `keep` summaries in `sent`, or all of them; the command is whatever was set last, by hand or by
    `handler`."""

    def __init__(
        self, handler: Callable[[StepSummary], Command | None] | None = None, *, keep: int | None = None
    ) -> None:
        self.keep = keep
        self.sent: list[StepSummary] = []
        self.dropped = 0
        self.handler = handler
        self._command: Command | None = None

    def send(self, report: Report) -> None:
        """Keep the summary, and let the handler answer it."""
        summary = report.whole()
        self.sent.append(summary)
        if self.keep is not None:
            del self.sent[: -self.keep]
        self._handle(summary)

    def ask(self, report: Report, timeout: float) -> bool:  # noqa: ARG002 - the handler answers at once
        """Let the handler answer once more; whoever sets commands by hand is always there."""
        self._handle(report.whole())
        return True

    def _handle(self, summary: StepSummary) -> None:
        answer = None if self.handler is None else self.handler(summary)
        if answer is not None:
            self.set_command(answer)

    def set_command(self, command: Command) -> None:
        """Publish a command, as an agent would."""
        self._command = command

    def command(self) -> Command | None:
        """The command published last."""
        return self._command

    def forget_command(self) -> None:
        """As if none had been published yet."""
        self._command = None

    def flush(self, timeout: float) -> None:
        """Nothing is pending."""

    def close(self, timeout: float) -> None:
        """Nothing to let go of."""
