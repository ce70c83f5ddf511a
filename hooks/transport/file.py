"""A transport without an agent: every summary is written to a spool directory, for `deliver` or `read_spool` later."""

from __future__ import annotations

from pathlib import Path

from trimtab.hooks.layout import Report
from trimtab.hooks.transport.background import Background
from trimtab.hooks.transport.spool import Spool


class FileTransport(Background):
    """Writes to `directory`. No command ever comes back."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__()
        self._spool = Spool(Path(directory))

    @property
    def dropped(self) -> int:
        """Summaries lost so far: the disk did not take them, the cap deleted them, or the queue was full."""
        return self._lost + self._spool.dropped

    def flush(self, timeout: float) -> None:
        """See `Background`; what was written is synced."""
        super().flush(timeout)
        self._spool.sync()

    def _work(self) -> None:
        while (report := self._next()) is not None:
            payload = self._payload(report)
            if payload is not None:
                self._done_with(report, lost=not self._spool.append(payload))
        self._spool.close()

    def _next(self) -> Report | None:
        """The oldest summary, once there is one; None once closed and done."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._close_at is not None)
            return self._head()
