"""W&B's offline log, `run-*.wandb`: what wandb-core writes whether it is online or not.

Metrics are records `history` of a protobuf message; their values are JSON, NaN included. wandb 0.31 writes whole blocks
of 32 KiB and what is left every 15 s or so: that is how late they come.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from trimtab.api.tail.files import PIECE, Chunk, chunk
from trimtab.api.tail.protobuf import BYTES, as_bytes, as_signed, fields
from trimtab.api.tail.source import Piece, Place, Row, Skipped, TailError, read_to_end
from trimtab.api.tail.values import MOST_KEYS, number, parsed, step_of, time_of
from trimtab.api.tail.wandb_log import BLOCK, HEADER, MAGIC, records

VERSIONS = (0,)
"""Of the file's header, that are known."""
_HISTORY = 2  # of Record
_ITEM, _STEP = 1, 2  # of HistoryRecord
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16  # of HistoryItem
_NUM = 1  # of HistoryStep


class WandbLog:
    """One run's file."""

    kind: ClassVar[str] = "wandb"
    quiet_s: ClassVar[float] = 45.0

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, place: Place) -> Piece:
        """The rows since `place`."""
        found, skipped = chunk(self.path, place), Skipped()
        rows = [Row(step=None, restart=True)] if found.begun else []
        skipped.cut_off += found.begun
        data, offset = self._behind_header(found)
        whole = records(data, offset)
        end = offset + whole.end
        if whole.begun and not whole.end and len(data) >= PIECE - HEADER:
            end = offset + len(data) // BLOCK * BLOCK  # a record that fills more than one look
            skipped.damaged += 1
        skipped.damaged += whole.damaged
        for record in whole.records:
            try:
                row = _row(record, skipped)
            except ValueError:
                skipped.damaged += 1
                continue
            rows += [] if row is None else [row]
        return Piece(
            rows=tuple(rows),
            place=found.place(end),
            more=end > found.offset and found.offset + len(found.data) < found.size,
            skipped=skipped,
        )

    def end(self) -> Place:
        """Behind the last whole record."""
        return read_to_end(self)

    def _behind_header(self, found: Chunk) -> tuple[bytes, int]:
        """The data behind the file's header, and its offset. Raises `TailError` where there is another header."""
        if found.offset or not found.data:
            return found.data, found.offset
        head = found.data[:HEADER]
        if not MAGIC.startswith(head[: len(MAGIC)]):
            raise TailError(f"{self.path}: begins with {head[:4]!r} and not {MAGIC!r}: give a file run-*.wandb")
        if len(head) < HEADER:
            return b"", 0
        if head[6] not in VERSIONS:
            raise TailError(f"{self.path}: is a W&B log of version {head[6]}, which is not known; report it")
        return found.data[HEADER:], HEADER


def _row(record: bytes, skipped: Skipped) -> Row | None:
    """The row that a record is; None where it is no history. Raises ValueError where it is no record."""
    history = next((as_bytes(value) for number_, _, value in fields(record) if number_ == _HISTORY), None)
    if history is None:
        return None
    step: int | None = None
    values: dict[str, float] = {}
    for name, kind, value in fields(history):
        if name == _ITEM:
            _take(as_bytes(value), values, skipped)
        elif name == _STEP and kind == BYTES:
            step = next((as_signed(inner) for part, _, inner in fields(as_bytes(value)) if part == _NUM), 0)
    told, time = values.pop("_step", step), time_of(values.pop("_timestamp", None))
    values.pop("_runtime", None)
    return Row(step=step_of(told), time=time, values=values)


def _take(item: bytes, values: dict[str, float], skipped: Skipped) -> None:
    parts: list[str] = []
    text = b""
    for name, _, value in fields(item):
        if name in (_KEY, _NESTED_KEY):
            parts.append(as_bytes(value).decode(errors="replace"))
        elif name == _VALUE_JSON:
            text = as_bytes(value)
    found = _json(text)
    if found is None or len(values) >= MOST_KEYS:
        skipped.not_numbers += text != b"null"
    else:
        values[".".join(parts)] = found


def _json(text: bytes) -> float | None:
    try:
        return float(text)  # nearly all of them; NaN and Infinity too
    except ValueError:
        pass
    try:
        return number(parsed(text))
    except ValueError:
        return None
