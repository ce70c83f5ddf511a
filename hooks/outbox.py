"""The steps that have ended and are not sent yet, since their vectors may still be on their way from the device."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from trimtab.hooks.accumulate import Drained
from trimtab.hooks.layout import Packed, Report
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.base import Transport


@dataclass(frozen=True, slots=True)
class _Pending:
    drained: Drained
    summary: StepSummary
    """Without what was measured."""


class Outbox:
    """Sends steps in order."""

    def __init__(self, transport: Transport) -> None:
        self.lost = 0
        """Steps that could not be reported, so far."""
        self.last: Report | None = None
        """The newest that was sent."""
        self._transport = transport
        self._pending: deque[_Pending] = deque()

    def add(self, drained: Drained, summary: StepSummary) -> None:
        """Take the step of `summary`, which is without what was measured: that is in `drained`."""
        self._pending.append(_Pending(drained, summary))

    def send(self, *, keep: int) -> None:
        """Send the steps whose vectors are here, and wait for all but the newest `keep`, which are long done."""
        while self._pending and (len(self._pending) > keep or self._pending[0].drained.ready()):
            pending = self._pending.popleft()
            try:
                report = Report(pending.summary, Packed.of(pending.drained.read()))
                self._transport.send(report)
            except BaseException:
                self.lost += 1
                raise
            self.last = report

    def discard(self) -> None:
        """Give up on what is not sent yet."""
        self.lost += len(self._pending)
        self._pending.clear()
