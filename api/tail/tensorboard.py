"""TensorBoard event files: all that lie in one folder, or one of them.

A writer makes a file of its own, and a restart another; they are read as one log, in the order of time. SummaryWriter
holds rows back for `flush_secs`, 120 s unless it is told otherwise.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import ClassVar

from trimtab.api.tail.files import PIECE, chunk, unreadable
from trimtab.api.tail.merging import Entry, Part, merged
from trimtab.api.tail.protobuf import BYTES, as_bytes, as_double, as_float, as_signed, fields
from trimtab.api.tail.source import Piece, Place, Row, Skipped, TailError, read_to_end
from trimtab.api.tail.tfrecord import records
from trimtab.api.tail.values import MOST_KEYS, step_of, time_of

MARK = "tfevents"
"""In the name of every event file."""
MOST_FILES = 512
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_VALUE = 1
_TAG, _SIMPLE, _TENSOR = 1, 2, 8
_DTYPE, _CONTENT, _FLOATS, _DOUBLES = 1, 4, 5, 6
_SCALARS = {1: ("<f", 4), 2: ("<d", 8)}
"""Formats of tensors that hold one number, by TensorFlow's number of the type."""


class TensorBoard:
    """The event files of one run."""

    kind: ClassVar[str] = "tensorboard"
    quiet_s: ClassVar[float] = 180.0

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, place: Place) -> Piece:
        """The events since `place`, of all files in the order of time."""
        known = place.get("files", {})
        paths = self._paths()
        most = max(PIECE // 16, 8 * PIECE // max(len(paths), 1)) if len(paths) > 8 else PIECE
        return merged([_part(path, known.get(path.name, {}), most) for path in paths])

    def end(self) -> Place:
        """Behind the last whole record of every file."""
        return read_to_end(self)

    def _paths(self) -> list[Path]:
        try:
            if not self.path.is_dir():
                return [self.path]
            found = sorted(path for path in self.path.iterdir() if MARK in path.name and path.is_file())
        except OSError as error:
            raise unreadable(self.path, error) from error
        if len(found) > MOST_FILES:
            raise TailError(f"{self.path}: {len(found)} event files are more than {MOST_FILES}; give one of them")
        return found


def _part(path: Path, place: Place, most: int) -> Part:
    found = chunk(path, place, most)
    entries = []
    left = found.size - found.offset - len(found.data)
    for record in records(found.data, left=left):
        skipped = Skipped(damaged=int(record.damaged), not_numbers=int(record.payload is None and not record.damaged))
        row = None
        if record.payload is not None:
            try:
                row = _row(record.payload, skipped)
            except ValueError:
                skipped.damaged += 1
        entries.append(Entry(row=row, end=found.offset + record.end, skipped=skipped))
    return Part(name=path.name, chunk=found, entries=entries)


def _row(payload: bytes, skipped: Skipped) -> Row | None:
    """The row that an event is; None where it holds no number. Raises ValueError where it is no event."""
    time, step = None, 0
    values: dict[str, float] = {}
    for number, _, value in fields(payload):
        if number == _WALL_TIME:
            time = time_of(as_double(value))
        elif number == _STEP:
            step = as_signed(value)
        elif number == _SUMMARY:
            for inner, _, part in fields(as_bytes(value)):
                if inner == _VALUE:
                    _take(as_bytes(part), values, skipped)
    return Row(step=step_of(step), time=time, values=values) if values else None


def _take(message: bytes, values: dict[str, float], skipped: Skipped) -> None:
    tag, found = "", None
    for number, kind, value in fields(message):
        if number == _TAG:
            tag = as_bytes(value).decode(errors="replace")
        elif number == _SIMPLE:
            found = as_float(value)
        elif number == _TENSOR and kind == BYTES:
            found = _scalar(as_bytes(value))
    if found is None or len(values) >= MOST_KEYS:
        skipped.not_numbers += 1
    else:
        values[tag] = found


def _scalar(tensor: bytes) -> float | None:
    """The one number in a tensor; None where it holds anything else."""
    dtype, content = 0, b""
    for number, kind, value in fields(tensor):
        if number == _DTYPE:
            dtype = as_signed(value)
        elif number in (_CONTENT, _FLOATS, _DOUBLES) and kind == BYTES:
            content = as_bytes(value)
        elif number in (_FLOATS, _DOUBLES):
            return as_float(value) if number == _FLOATS else as_double(value)
    form, length = _SCALARS.get(dtype, ("", -1))
    return float(struct.unpack(form, content)[0]) if len(content) == length else None
