"""What a process still has to deliver when it is told to end, as a scheduler does with SIGTERM.

The signal need not be the end: a trainer may note it, save at its next step and go on until then, or for good. So what
is pending is delivered, and nothing else is touched.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

Flush = Callable[[float], None]
"""Delivers what is pending, for at most so many seconds."""

_log = logging.getLogger("trimtab")


class _Handler:
    """One handler of SIGTERM in front of the one that was `before` it, for as many flushes as there are."""

    def __init__(self, before: Any) -> None:
        self.before = before
        self.flushes: list[tuple[Flush, float]] = []
        self._owner = os.getpid()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._owner:
            try:
                self._flush()
            except Exception as error:  # no thread can be started any more
                _log.warning(
                    "trimtab: what is pending at SIGTERM is not delivered: %s: %s", type(error).__name__, error
                )
        if callable(self.before):
            self.before(number, frame)
        elif self.before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _flush(self) -> None:
        """In other threads, since the signal may have come while this one held a lock of theirs."""
        threads = []
        for flush, seconds in tuple(self.flushes):
            thread = threading.Thread(target=flush, args=(seconds,), daemon=True)
            thread.start()
            threads.append((thread, time.monotonic() + seconds))
        for thread, until in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def take_off(self) -> None:
        """Where nobody put another handler in front of it meanwhile, have the one before it back."""
        now: Any = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is threading.main_thread() and now is self:
            before = self.before
            while isinstance(before, _Handler) and not before.flushes:
                before = before.before
            signal.signal(signal.SIGTERM, before)


def flush_at_sigterm(flush: Flush, seconds: float) -> Callable[[], None]:
    """Call `flush(seconds)` at SIGTERM, wait for at most as long, and then do what SIGTERM did before.

    Nothing is done outside the main thread, where Python takes no signals, in a process whose handler is not Python's,
    and in a fork. Several flushes run at the same time.

    Returns:
        Forgets this flush, and takes the handler off again with the last one, in whatever order.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    now = signal.getsignal(signal.SIGTERM)
    if now is None:
        return lambda: None
    handler = now if isinstance(now, _Handler) else _Handler(now)
    if handler is not now:
        signal.signal(signal.SIGTERM, handler)
    entry = (flush, seconds)
    handler.flushes.append(entry)

    def off() -> None:
        if entry in handler.flushes:
            handler.flushes.remove(entry)
        if not handler.flushes:
            handler.take_off()

    return off
