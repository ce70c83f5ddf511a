"""A bounded queue and the daemon thread that empties it, so that no disk or network is ever waited for in training."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque

from trimtab.hooks.layout import Report
from trimtab.hooks.records import Command
from trimtab.hooks.wire import encode

CAPACITY = 4096
"""Summaries kept in memory; beyond it the oldest is dropped and counted."""
RESTART_SECONDS = 1.0
"""Pause after an error that nobody foresaw."""

_log = logging.getLogger("trimtab")


class Background(ABC):
    """Takes summaries at once; a subclass's `_work` deals with them in a thread of its own.

    The thread starts with the first summary, so making a transport costs nothing, and forking an idle one is harmless.
    It lives as long as the transport: an error that nobody foresaw costs the summary at the head of the queue.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._queue: deque[Report] = deque()
        self._lost = 0
        self._changed = threading.Condition(threading.RLock())
        """Guards everything above; notified when something was sent and when closing. `send` takes it in a training
        step, so nothing that may wait is done while it is held."""
        self._thread: threading.Thread | None = None
        self._close_at: float | None = None
        """Monotonic time at which closing must be done; None while open."""
        self._command: Command | None = None
        """The newest command received; a subclass that hears from an agent sets it."""
        self._said: set[str] = set()

    def command(self) -> Command | None:
        """The newest command received, or None before the first."""
        return self._command

    def forget_command(self) -> None:
        """As if none had been received yet."""
        self._command = None

    def ask(self, report: Report, timeout: float) -> bool:  # noqa: ARG002 - the protocol's
        """False: there is nobody to ask, unless a subclass hears from an agent."""
        return False

    def send(self, report: Report) -> None:
        """Take one summary; the oldest gives way where the queue is full. Making it whole is left to the thread."""
        with self._changed:
            if self._close_at is not None:
                self._lost += 1
                return
            if len(self._queue) >= self._capacity:
                self._queue.popleft()
                self._lost += 1
            self._queue.append(report)
            self._awake()

    def flush(self, timeout: float) -> None:
        """Wait until the thread has dealt with what is in the queue, for at most `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue, timeout)

    def close(self, timeout: float) -> None:
        """Let the thread finish for at most `timeout` seconds; what is left then is lost, and counted."""
        with self._changed:
            if self._close_at is not None:
                return
        self._finish(timeout)
        with self._changed:
            self._lost += len(self._queue)
            self._queue.clear()

    def _awake(self) -> None:
        """See to it that the thread looks at what there is to do; while `_changed` is held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="trimtab-transport", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _finish(self, timeout: float) -> None:
        with self._changed:
            self._close_at = time.monotonic() + timeout
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)

    def _head(self) -> Report | None:
        """The oldest summary in the queue; it stays there until `_done_with`."""
        with self._changed:
            return self._queue[0] if self._queue else None

    def _payload(self, report: Report) -> bytes | None:
        """The record to write or send. None where there can be none: then the summary is lost, and counted."""
        try:
            return encode(report.whole())
        except Exception as error:
            self._say_once(f"a summary that cannot be written: {type(error).__name__}: {error}", kind="written")
            self._done_with(report, lost=True)
            return None

    def _done_with(self, report: Report, *, lost: bool = False) -> None:
        """Take `report` off the queue, unless it gave way to newer ones meanwhile."""
        with self._changed:
            if self._queue and self._queue[0] is report:
                self._queue.popleft()
                self._lost += lost
                if not self._queue:
                    self._changed.notify_all()

    def _say_once(self, message: str, *, kind: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            _log.warning("trimtab: %s (more of this kind will only be counted)", message)

    def _run(self) -> None:
        while True:
            try:
                self._work()
                return
            except Exception as error:
                self._say_once(f"the transport failed: {type(error).__name__}: {error}", kind="transport")
            head = self._head()
            if head is not None:
                self._done_with(head, lost=True)
            with self._changed:
                self._changed.wait_for(lambda: self._close_at is not None, RESTART_SECONDS)
                if self._close_at is not None:
                    return

    @abstractmethod
    def _work(self) -> None:
        """Run in the thread until closed and done."""
