"""Several files that one job writes at the same time, read as one log in the order of time.

Of a file that has more than was read of it, what comes behind the last row is not known; so no row of any file is given
out that is later than that, and the rest is read again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from trimtab.api.tail.files import Chunk
from trimtab.api.tail.source import Piece, Place, Row, Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A record of a file."""

    row: Row | None
    """None where it holds no number."""
    end: int
    """Offset in the file behind it."""
    skipped: Skipped = field(default_factory=Skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one look at one file gave."""

    name: str
    chunk: Chunk
    entries: Sequence[Entry]

    @property
    def more(self) -> bool:
        """There is more in the file that can be read at once."""
        return bool(self.entries) and self.entries[-1].end < self.chunk.size and self._filled

    @property
    def _filled(self) -> bool:
        # What is left of a look is the beginning of a record: whole, or still being written.
        return self.chunk.offset + len(self.chunk.data) < self.chunk.size or (
            self.entries[-1].end > self.chunk.offset + len(self.chunk.data)
        )


def merged(parts: Sequence[Part]) -> Piece:
    """Rows of all files that can be given out, and where each file is then."""
    bounds = [_last_time(part) for part in parts if part.more]
    until = min(bounds, default=math.inf)
    rows: list[tuple[float, Row]] = []
    files: dict[str, Place] = {}
    skipped, more = Skipped(), False
    for part in parts:
        offset, at = part.chunk.offset, -math.inf
        if part.chunk.begun:
            rows.append((-math.inf, Row(step=None, restart=True)))
            skipped.cut_off += 1
        for entry in part.entries:
            at = at if entry.row is None or entry.row.time is None else max(at, entry.row.time)
            if at > until:
                more = True
                break
            offset = entry.end
            skipped.add(entry.skipped)
            if entry.row is not None:
                rows.append((at, entry.row))
        files[part.name] = part.chunk.place(offset)
    rows.sort(key=lambda each: each[0])
    return Piece(
        rows=tuple(row for _, row in rows),
        place={"files": files},
        more=more or bool(bounds),
        skipped=skipped,
    )


def _last_time(part: Part) -> float:
    times = [entry.row.time for entry in part.entries if entry.row is not None and entry.row.time is not None]
    return max(times, default=math.inf)
