"""What a process still has to deliver when it is told to end, as a scheduler does with SIGTERM."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


def flush_at_sigterm(close: Callable[[], None], seconds: float) -> Callable[[], None]:
    """Call `close` at SIGTERM, for at most `seconds`, and then do what SIGTERM did before.

    Nothing is done outside the main thread, where Python takes no signals, in a process whose handler is not Python's,
    and in a fork. `close` runs in another thread, since the signal may have come while this one held a lock of it.

    Returns:
        Takes the handler off again, where it is still there.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    before = signal.getsignal(signal.SIGTERM)
    if before is None:
        return lambda: None
    owner = os.getpid()

    def handler(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            flushing = threading.Thread(target=close, daemon=True)
            flushing.start()
            flushing.join(seconds)
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, handler)

    def off() -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, before)

    return off
