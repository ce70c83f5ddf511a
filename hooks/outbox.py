"""The steps that have ended and are not sent yet, since their vectors may still be on their way from the device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.accumulate import Drained
from trimtab.hooks.layout import Packed, Report
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.base import Transport

POLL_SECONDS = 0.01


@dataclass(slots=True)
class _Pending:
    drained: Drained
    summary: StepSummary | None
    """Without what was measured; None where the step is lost, or was sent ahead."""


class Outbox:
    """Sends steps in order."""

    def __init__(self, transport: Transport) -> None:
        self.lost = 0
        """Steps that could not be reported, so far."""
        self.last: Report | None = None
        """The newest that could be put together."""
        self._transport = transport
        self._pending: deque[_Pending] = deque()

    def add(self, drained: Drained, summary: StepSummary | None) -> None:
        """Take the step of `summary`, which is without what was measured: that is in `drained`."""
        self._pending.append(_Pending(drained, summary))

    def arrived(self, *, keep: int, early: bool) -> Iterator[tuple[StepSummary | None, NDArray[np.float64]]]:
        """Hand out the steps in order with their vectors, and wait for all but the newest `keep`, which are long done;
        `early` also those that are here already."""
        while self._pending and (len(self._pending) > keep or (early and self._pending[0].drained.ready())):
            pending = self._pending.popleft()
            try:
                vector = pending.drained.read()
            except BaseException:
                self.lost += pending.summary is not None
                raise
            yield pending.summary, vector

    def ahead(self, until: float) -> Iterator[tuple[StepSummary, NDArray[np.float64]]]:
        """Hand out the steps that are here by the monotonic time `until`, in order, before they are due. When they are,
        `arrived` gives their vectors once more, without the summaries."""
        for pending in tuple(self._pending):
            while not pending.drained.ready():
                if time.monotonic() >= until:
                    return
                time.sleep(POLL_SECONDS)
            if pending.summary is not None:
                vector, summary = pending.drained.read(), pending.summary
                pending.drained, pending.summary = Drained(lambda: True, partial(_same, vector)), None
                yield summary, vector

    def send(self, summary: StepSummary, vector: NDArray[np.float64]) -> None:
        """Send a step that has arrived."""
        try:
            self.last = Report(summary, Packed.of(vector))
            self._transport.send(self.last)
        except BaseException:
            self.lost += 1
            raise

    def discard(self) -> None:
        """Give up on what is not sent yet."""
        self.lost += sum(pending.summary is not None for pending in self._pending)
        self._pending.clear()


def _same(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return vector
