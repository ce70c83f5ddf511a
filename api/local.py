"""The agent inside the training process: no server, no thread, the same store.

For tests, notebooks and single-machine runs. Every summary is stored and judged before `send` returns, so a run is
deterministic; the price is that the trainer waits for the disk. A running `trimtab serve` may show the same file
meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from trimtab.api.restore import UnreadableJobError
from trimtab.api.service import Service
from trimtab.hooks.layout import Report
from trimtab.hooks.records import Command
from trimtab.storage.engine import StorageError
from trimtab.storage.store import ConflictError


class LocalTransport:
    """A transport of `trimtab.hooks.transport.base` onto an embedded service.

    What the store refuses is counted in `dropped` and never raised into the training loop.
    """

    def __init__(self, path: str | Path, job: str) -> None:
        """Open, or make, the SQLite file and the job in it, so that mistakes are told before step 0.

        Raises:
            StorageError: the file cannot be used.
            RecordError: the name cannot name a job.
            UnreadableJobError: the job was stored by another version, and means nothing to this one.
        """
        self.service = Service.open(path)
        self.service.register(job, config=None, mode=None, issuer="local", reason="attached")
        self.service.state(job)  # where its ledger has to be folded again, not within a training step
        self.dropped = 0
        self._command: Command | None = None

    def send(self, report: Report) -> None:
        """Store and judge the summary; its command is there when this returns."""
        self.dropped += not self._ingested(report)

    def ask(self, report: Report, timeout: float) -> bool:  # noqa: ARG002 - the answer is there at once
        """Have the service answer once more."""
        return self._ingested(report)

    def command(self) -> Command | None:
        """The newest command, or None before the first."""
        return self._command

    def forget_command(self) -> None:
        """As if none had been given yet."""
        self._command = None

    def _ingested(self, report: Report) -> bool:
        try:
            command = self.service.ingest(report.whole()).command
        except (SQLAlchemyError, StorageError, ConflictError, UnreadableJobError, ValueError):
            return False
        if command is not None:
            self._command = command
        return True

    def flush(self, timeout: float) -> None:
        """Nothing is pending."""

    def close(self, timeout: float) -> None:  # noqa: ARG002 - the protocol's
        """Let go of the file; nothing is pending."""
        self.service.close()
