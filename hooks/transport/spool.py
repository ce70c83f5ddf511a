"""Records on disk, in order, in bounded space: what a transport falls back on, and a way to record a run.

A directory of numbered segments; a record is its length and CRC-32 (big-endian, 4 bytes each) and then its bytes.
Each segment is synced when it is full or closed. When the directory outgrows its cap, the oldest segment goes and its
records are counted as dropped. A torn or damaged record ends its segment for the reader; a writer never appends after
one.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trimtab.hooks.records import StepSummary
from trimtab.hooks.wire import decode

CAP_BYTES = 64 << 20
SEGMENT_BYTES = 1 << 20
_HEADER = struct.Struct(">II")
_SUFFIX = ".spool"
_LOCK = "lock"


class Spool:
    """One writer's directory, which the same process also reads from the oldest record on. Not thread-safe.

    But for `claim`, no method raises for what the disk does: a record that could not be written is reported as False,
    and so is any record while another process has the directory, or after closing.
    """

    def __init__(self, directory: Path, *, cap_bytes: int = CAP_BYTES, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = directory
        self.dropped = 0
        """Records lost with segments that the cap deleted."""
        self._cap_bytes, self._segment_bytes = cap_bytes, segment_bytes
        self._segments: deque[Path] = deque()
        self._lock: int | None = None
        self._file: int | None = None
        self._size = 0
        self._offset = 0
        """Where reading goes on in the oldest segment."""
        self._closed = False

    def exists(self) -> bool:
        """Whether a spool was ever kept in the directory."""
        return (self.directory / _LOCK).exists()

    def claim(self) -> None:
        """Take the directory, and what an earlier process left in it.

        Raises:
            OSError: there is no such directory, or another process has it.
        """
        if self._lock is not None:
            return
        lock = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._segments = deque(_segments(self.directory))
        except OSError:
            os.close(lock)
            raise
        self._lock, self._offset = lock, 0

    def append(self, payload: bytes) -> bool:
        """Write one record at the end; False where the disk did not take it, and then nothing of it stays."""
        if self._closed:
            return False
        try:
            file = self._open() if self._file is None else self._file
            record = _HEADER.pack(len(payload), zlib.crc32(payload)) + payload
            if os.write(file, record) != len(record):
                raise OSError("short write")
        except OSError:
            self._cut_tail()
            return False
        self._size += len(record)
        if self._size >= self._segment_bytes:
            self._end_segment()
        return True

    def peek(self) -> bytes | None:
        """The oldest record that was not popped, or None."""
        with suppress(OSError):
            if self._lock is None and not self._closed and self.directory.is_dir():
                self.claim()
        while self._segments and not self._closed:
            payload = _read_at(self._segments[0], self._offset)
            if payload is not None:
                return payload
            self._drop_oldest()
        return None

    def pop(self) -> None:
        """Be done with the record that `peek` gave."""
        payload = self.peek()
        if payload is not None:
            self._offset += _HEADER.size + len(payload)

    def count(self) -> int:
        """Records that were not popped."""
        return sum(1 for i, path in enumerate(self._segments) for _ in _payloads(path, 0 if i else self._offset))

    def close(self) -> None:
        """Sync what was written, take what was popped off the disk, and let another process have the directory."""
        self._end_segment()
        with suppress(OSError):
            self._cut_popped()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._closed = True

    def _cut_popped(self) -> None:
        if self._segments and self._offset:
            segment = self._segments[0]
            rest = segment.read_bytes()[self._offset :]
            if not rest:
                segment.unlink()
                return
            scratch = segment.with_suffix(".scratch")
            with scratch.open("wb") as file:
                file.write(rest)
                os.fsync(file.fileno())
            scratch.replace(segment)

    def _end_segment(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.fsync(self._file)
            with suppress(OSError):
                os.close(self._file)
            self._file = None

    def _open(self) -> int:
        if self._lock is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.claim()
        self._keep_under_cap()
        last = self._segments[-1] if self._segments else None
        number = int(last.stem) + 1 if last else 0
        path = self.directory / f"{number:012d}{_SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._size = 0
        self._segments.append(path)
        return self._file

    def _keep_under_cap(self) -> None:
        while (
            self._segments and sum(_bytes_of(path) for path in self._segments) > self._cap_bytes - self._segment_bytes
        ):
            self.dropped += sum(1 for _ in _payloads(self._segments[0], self._offset))
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        if len(self._segments) == 1:
            self._end_segment()
        path = self._segments.popleft()
        self._offset = 0
        with suppress(OSError):
            path.unlink()

    def _cut_tail(self) -> None:
        """Take back a half-written record; where even that fails, leave the segment and start another."""
        if self._file is not None:
            try:
                os.ftruncate(self._file, self._size)
                os.lseek(self._file, self._size, os.SEEK_SET)
            except OSError:
                self._end_segment()


def read_spool(directory: str | Path) -> Iterator[StepSummary]:
    """The step summaries in a spool directory, oldest first.

    Raises:
        OSError: the directory cannot be read.
        ValueError: a record is whole, but no step summary of this version.
    """
    for path in _segments(Path(directory)):
        for payload in _payloads(path):
            yield decode(StepSummary, payload)


def _segments(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix == _SUFFIX and path.stem.isdigit())


def _payloads(path: Path, offset: int = 0) -> Iterator[bytes]:
    while (payload := _read_at(path, offset)) is not None:
        yield payload
        offset += _HEADER.size + len(payload)


def _read_at(path: Path, offset: int) -> bytes | None:
    """The whole record at `offset`, or None at the end, at a torn one, and where the disk fails."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return None
            length, checksum = _HEADER.unpack(header)
            payload = file.read(min(length, CAP_BYTES))
    except OSError:
        return None
    return payload if len(payload) == length and zlib.crc32(payload) == checksum else None


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
