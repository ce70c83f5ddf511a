"""A file that grows while it is read, and may be cut, replaced, or go away.

A file is known by device, inode and its first bytes. Where one of them is another, or the file is shorter than what was
read of it, another log has begun: it is read from its start.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trimtab.api.tail.source import TailError

HEAD = 256
"""Bytes at the beginning by which a file is known again."""
PIECE = 1 << 20
"""Bytes that are read at once."""


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """The file, opened to read only. Raises `TailError` where it cannot be, and where reading fails."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe without a writer must not be waited for
        with open(os.open(path, flags), "rb") as file:
            yield file
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> TailError:
    """What is told of a file that cannot be read, and what to do."""
    if isinstance(error, FileNotFoundError):
        return TailError(f"{path}: is not there (any more); check the path, or wait until the job has made it")
    if isinstance(error, PermissionError):
        return TailError(f"{path}: may not be read by this user; run the tail as the job's user, or give it the right")
    if isinstance(error, IsADirectoryError):
        return TailError(f"{path}: is a folder; give the file in it")
    return TailError(f"{path}: cannot be read: {error.strerror or error}; it is tried again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a file."""

    data: bytes
    offset: int
    """Where in the file it begins."""
    begun: bool
    """The file is another than before, and this is its beginning."""
    identity: dict[str, Any]
    """Of the file, for the next look."""
    size: int
    """Of the file now."""

    def place(self, offset: int, **more: Any) -> dict[str, Any]:
        """The place at an offset of the file."""
        return {**self.identity, "offset": offset, **more}


def chunk(path: Path, place: Mapping[str, Any], most: int = PIECE) -> Chunk:
    """At most `most` bytes from the place on, or from the start of what has taken the file's place.

    Raises:
        TailError: the file cannot be read.
    """
    with reading(path) as file:
        found = os.fstat(file.fileno())
        offset, begun = int(place.get("offset", 0)), False
        head = file.read(HEAD)
        known = {"device": found.st_dev, "inode": found.st_ino}
        same = all(place.get(name) == value for name, value in known.items()) and found.st_size >= offset
        length = int(place.get("head_length", 0))
        if place and not (same and len(head) >= length and _digest(head[:length]) == place.get("head")):
            offset, begun = 0, True
        file.seek(offset)
        data = file.read(most)
        identity = {**known, "head_length": len(head), "head": _digest(head)}
        return Chunk(data=data, offset=offset, begun=begun, identity=identity, size=found.st_size)


def moved(path: Path, place: Mapping[str, Any]) -> Path | None:
    """Where the file of a place lies that another has replaced at `path`: under another name in the same folder, as a
    rotation leaves it. None where it is gone."""
    try:
        with os.scandir(path.parent) as entries:
            found = [Path(entry.path) for entry in entries if entry.inode() == place.get("inode")]
        same = (each for each in found if each.name != path.name and not chunk(each, place, 0).begun)
        return next(same, None)
    except (OSError, TailError):
        return None


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:16]
