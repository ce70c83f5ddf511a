"""A bounded queue and the daemon thread that empties it, so that no disk or network is ever waited for in training."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque

from trimtab.hooks.layout import Report
from trimtab.hooks.records import StepSummary

CAPACITY = 4096
"""Summaries kept in memory; beyond it the oldest is dropped and counted."""


_log = logging.getLogger("trimtab")


class Background(ABC):
    """Takes summaries at once; a subclass's `_work` deals with them in a thread of its own.

    The thread starts with the first summary, so making a transport costs nothing, and forking an idle one is harmless.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._queue: deque[Report] = deque()
        self._lost = 0
        self._changed = threading.Condition(threading.RLock())
        """Guards everything above; notified when something was sent and when closing."""
        self._thread: threading.Thread | None = None
        self._close_at: float | None = None
        """Monotonic time at which closing must be done; None while open."""

    def send(self, summary: StepSummary) -> None:
        """Take one summary; the oldest gives way where the queue is full."""
        self.send_report(Report(summary))

    def send_report(self, report: Report) -> None:
        """Like `send`; making the summary whole is left to the thread."""
        with self._changed:
            if self._close_at is not None:
                self._lost += 1
                return
            if len(self._queue) >= self._capacity:
                self._queue.popleft()
                self._lost += 1
            self._queue.append(report)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trimtab-transport", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self, timeout: float) -> None:
        """Let the thread finish for at most `timeout` seconds."""
        with self._changed:
            if self._close_at is not None:
                return
            self._close_at = time.monotonic() + timeout
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)

    def _done_with(self, report: Report) -> None:
        """Take `report` off the queue, unless it gave way to newer ones meanwhile."""
        with self._changed:
            if self._queue and self._queue[0] is report:
                self._queue.popleft()

    def _run(self) -> None:
        try:
            self._work()
        except Exception:
            _log.warning("trimtab: the transport has failed; summaries are only counted from here on", exc_info=True)
            with self._changed:
                self._lost += len(self._queue)
                self._queue.clear()
                self._close_at = self._close_at or time.monotonic()

    @abstractmethod
    def _work(self) -> None:
        """Run in the thread until closed and done."""
