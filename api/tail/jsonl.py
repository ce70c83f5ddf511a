"""JSON lines: verl's file logger, prime-rl's FileMonitor and token exports, and any `{"step": ...}`.

One object a line. verl's has its numbers under `data`, prime-rl's a `time` beside them, and a step may be called what
HF calls it. A line without its end is left until it has one; one that is longer than `LONGEST` is passed over. Of a
file that was renamed the rest is read before the one in its place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from trimtab.api.tail.files import PIECE, Chunk, chunk, moved
from trimtab.api.tail.source import Piece, Place, Row, Skipped
from trimtab.api.tail.values import numbers, parsed, step_of, time_of

LONGEST = PIECE
"""Bytes of a line."""
STEPS = ("step", "global_step", "_step", "trainer_step", "iteration")
"""Names of the step, the first that is there."""
TIMES = ("time", "_timestamp", "timestamp", "wall_time")
"""Names of the time of logging, the first that is there and is one."""
_EARLIEST = 1e9
"""No time in Unix seconds is smaller; what is, is a duration."""


class JsonLines:
    """A file of JSON lines."""

    kind: ClassVar[str] = "jsonl"
    quiet_s: ClassVar[float] = 30.0

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, place: Place) -> Piece:
        """The rows of the whole lines since `place`."""
        skipped = Skipped()
        found, is_rest = self._next(place, skipped)
        passing = bool(place.get("passing")) and not found.begun
        rows: list[Row] = []
        used = found.data.rfind(b"\n") + 1
        for line in found.data[:used].split(b"\n")[:-1]:
            if passing:
                passing = False  # the end of a line that was too long
            elif line.strip():
                row = self._row(line, skipped)
                rows += [] if row is None else [row]
        if not used and len(found.data) >= LONGEST:
            skipped.damaged += not passing
            passing, used = True, len(found.data)
        elif not used and is_rest:  # nobody will write its end
            row = None if passing else self._row(found.data, skipped)
            rows += [] if row is None else [row]
            used = len(found.data)
        if found.begun:
            rows.insert(0, Row(step=None, restart=True))
        offset = found.offset + used
        return Piece(
            rows=tuple(rows),
            place=found.place(offset, **({"passing": True} if passing else {})),
            more=is_rest or (used > 0 and offset < found.size and len(found.data) == PIECE),
            skipped=skipped,
        )

    def _next(self, place: Place, skipped: Skipped) -> tuple[Chunk, bool]:
        """What is to be read now, and whether it is the rest of a file that another has replaced."""
        found = chunk(self.path, place)
        if found.begun:
            old = moved(self.path, place)
            rest = None if old is None else chunk(old, place)
            if rest is None or rest.begun:
                skipped.cut_off += 1
            elif rest.data:
                return rest, True
        return found, False

    def end(self) -> Place:
        """Behind the last whole line, as far as one look at the file's end tells."""
        found = chunk(self.path, {}, 0)
        if not found.size:
            return found.place(0)
        # From the middle of a line on, its rest is passed over like one that is too long.
        start = max(found.size - PIECE, 0)
        tail = chunk(self.path, found.place(start))
        used = tail.data.rfind(b"\n") + 1
        return found.place(start + used, **({} if used or not start else {"passing": True}))

    @staticmethod
    def _row(line: bytes, skipped: Skipped) -> Row | None:
        try:
            record = parsed(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            skipped.damaged += 1
            return None
        return row_of(record, skipped)


def row_of(record: dict[str, Any], skipped: Skipped) -> Row:
    """The row that an object is."""
    name = next((each for each in STEPS if each in record), None)
    step = None if name is None else step_of(record[name])
    times = ((each, time_of(record.get(each))) for each in TIMES)
    when = next(((each, found) for each, found in times if found is not None and found >= _EARLIEST), None)
    apart = {name, None if when is None else when[0]}
    rest = {key: value for key, value in record.items() if key not in apart}
    if isinstance(rest.get("data"), dict):  # verl's
        rest = {**{key: value for key, value in rest.items() if key != "data"}, **rest["data"]}
    return Row(step=step, time=None if when is None else when[1], values=numbers(rest, skipped))
