"""The transport's thread outlives any error."""

from __future__ import annotations

import threading

import pytest

from trimtab.hooks.layout import Report
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport import background
from trimtab.hooks.transport.background import Background


def report(step: int) -> Report:
    return Report(StepSummary(job="run", attempt=1, step=step))


class Failing(Background):
    """Fails at the steps in `bad`, as a bug would."""

    def __init__(self, bad: set[int]) -> None:
        super().__init__()
        self.bad = bad
        self.done: list[int] = []
        self.last = threading.Event()

    @property
    def dropped(self) -> int:
        return self._lost

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._close_at is not None)
                head = self._head()
            if head is None:
                return
            if head.summary.step in self.bad:
                raise RuntimeError(f"step {head.summary.step}")
            self.done.append(head.summary.step)
            self._done_with(head)
            if head.summary.step == 9:
                self.last.set()


def test_an_error_that_nobody_foresaw_costs_one_summary(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "RESTART_SECONDS", 0.0)
    transport = Failing({2, 3, 7})
    for step in range(10):
        transport.send(report(step))
    assert transport.last.wait(20)
    transport.close(2)
    assert (transport.done, transport.dropped) == ([0, 1, 4, 5, 6, 8, 9], 3)
    assert [record.getMessage()[:46] for record in caplog.records] == ["trimtab: the transport failed: RuntimeError: s"]


def test_closing_ends_a_pause_and_counts_what_is_left() -> None:
    transport = Failing(set(range(10)))
    for step in range(10):
        transport.send(report(step))
    transport.close(20)
    assert (transport.done, transport.dropped) == ([], 10)
