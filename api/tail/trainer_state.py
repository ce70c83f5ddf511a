"""The `trainer_state.json` of Hugging Face's Trainer, in the newest checkpoint of a run's folder.

It holds the whole `log_history`, and is written at each save: a row is as late as the save behind it. What was read is
known again by a digest of every row. Where a later file has other rows, the run was resumed from before them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, ClassVar

from trimtab.api.tail.files import reading, unreadable
from trimtab.api.tail.jsonl import row_of
from trimtab.api.tail.source import Piece, Place, Row, Skipped, TailError
from trimtab.api.tail.values import parsed

NAME = "trainer_state.json"
LARGEST = 64 << 20
"""Bytes of such a file."""
MOST = 50_000
"""Rows of a history that are known again."""
_PREFIX = "checkpoint-"


class TrainerState:
    """One such file, or a folder of checkpoints that hold one each."""

    kind: ClassVar[str] = "trainer_state"
    quiet_s: ClassVar[float] = 1.0

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, place: Place) -> Piece:
        """The rows that the newest file has beyond those at `place`."""
        path, stamp = self._newest()
        if path is None or stamp == place.get("stamp"):
            return Piece(rows=(), place=place)
        history = self._history(path)
        digests = [_digest(row) for row in history]
        known: list[str] = list(place.get("rows", ()))
        same = next((i for i, (a, b) in enumerate(zip(known, digests, strict=False)) if a != b), len(known))
        skipped = Skipped()
        rows = [row_of(row, skipped) for row in history[same:]]
        if same < len(known) and rows:
            rows.insert(0, Row(step=None, restart=True))
        elif same >= len(digests):  # an older file, whose rows are all known
            digests = known
        return Piece(rows=tuple(rows), place={"stamp": stamp, "rows": digests}, skipped=skipped)

    def end(self) -> Place:
        """Behind the newest file."""
        return self.read({}).place

    def _newest(self) -> tuple[Path | None, list[Any]]:
        """The newest file, and what tells another one from it; None where there is none yet."""
        try:
            paths = [self.path]
            if self.path.is_dir():
                below = (each / NAME for each in self.path.iterdir() if each.name.startswith(_PREFIX))
                paths = [each for each in (self.path / NAME, *below) if each.is_file()]
            found = [(each.stat(), each) for each in paths]
        except OSError as error:
            raise unreadable(self.path, error) from error
        if not found:
            return None, []
        status, path = max(found, key=lambda each: (each[0].st_mtime_ns, each[1].name))
        if status.st_size > LARGEST:
            raise TailError(f"{path}: {status.st_size} bytes are more than {LARGEST}; log less often")
        return path, [path.name, path.parent.name, status.st_ino, status.st_size, status.st_mtime_ns]

    @staticmethod
    def _history(path: Path) -> list[dict[str, Any]]:
        with reading(path) as file:
            data = file.read(LARGEST)
        try:
            state = parsed(data)
            history = state["log_history"]
            rows = [row for row in history if isinstance(row, dict)]
        except (ValueError, KeyError, TypeError) as error:
            # Written in place: it may be half there.
            raise TailError(
                f"{path}: is no trainer_state.json, or not whole yet ({error}); it is tried again"
            ) from error
        if len(rows) > MOST:
            raise TailError(f"{path}: {len(rows)} rows are more than {MOST}; log less often")
        return rows


def _digest(row: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:12]
