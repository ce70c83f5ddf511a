"""What a log is to its reader: rows of numbers by step, and a place to go on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from trimtab.api.errors import UserError

Place = Mapping[str, Any]
"""Where reading goes on, as JSON can hold it; empty at the beginning."""


class TailError(UserError):
    """A log that cannot be read; the message names the file and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was logged at once."""

    step: int | None
    """None where the row does not say."""
    time: float | None = None
    """When it was logged, Unix seconds; None where the log does not say."""
    values: Mapping[str, float] = field(default_factory=dict)
    """By the key that it was logged under; may be NaN or infinite."""
    restart: bool = False
    """A new log begins with it: the file was cut, or another has taken its place."""


@dataclass(slots=True, kw_only=True)
class Skipped:
    """What was passed over."""

    damaged: int = 0
    """Records that are not what they should be: a checksum, a line that is no JSON, one that is far too long."""
    not_numbers: int = 0
    """Values that are no numbers, such as texts and tables."""
    cut_off: int = 0
    """Files that were cut, or replaced and are gone: what they held beyond the place is lost, if there was anything."""

    def add(self, other: Skipped) -> None:
        """Count those of another, too."""
        self.damaged += other.damaged
        self.not_numbers += other.not_numbers
        self.cut_off += other.cut_off


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one look at a log gave."""

    rows: tuple[Row, ...]
    place: Place
    """Where to go on, once the rows are in safe hands."""
    more: bool = False
    """There is more to be read at once."""
    skipped: Skipped = field(default_factory=Skipped)


class Source(Protocol):
    """One log. It holds nothing open between two looks, and remembers nothing: that is what the place is for."""

    kind: ClassVar[str]
    quiet_s: ClassVar[float]
    """Seconds without news after which a step is taken to be complete: longer than its writer holds rows back."""

    def __init__(self, path: Path) -> None: ...

    def read(self, place: Place) -> Piece:
        """What has been logged since `place`, or the next part of it.

        Raises:
            TailError: the log cannot be read.
        """
        ...

    def end(self) -> Place:
        """The place behind everything that is there now.

        Raises:
            TailError: the log cannot be read.
        """
        ...


def read_to_end(source: Source) -> Place:
    """The place behind everything that is there now, for a log that has to be read to know it."""
    place: Place = {}
    while True:
        piece = source.read(place)
        place = piece.place
        if not piece.more:
            return place
