"""A transport without an agent: every summary is written to a spool directory, to be replayed later."""

from __future__ import annotations

from pathlib import Path

from trimtab.hooks.records import Command
from trimtab.hooks.transport.background import Background
from trimtab.hooks.transport.spool import Spool
from trimtab.hooks.wire import encode


class FileTransport(Background):
    """Writes to `directory`. No command ever comes back."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__()
        self._spool = Spool(Path(directory))

    @property
    def dropped(self) -> int:
        """Summaries lost so far: the disk did not take them, the cap deleted them, or the queue was full."""
        return self._lost + self._spool.dropped

    def command(self) -> Command | None:
        """None: nobody answers."""
        return None

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue and self._close_at is None:
                    self._changed.wait()
                if not self._queue:
                    break
                report = self._queue[0]
            written = self._spool.append(encode(report.whole()))
            with self._changed:
                self._done_with(report)
                self._lost += not written
        self._spool.close()
