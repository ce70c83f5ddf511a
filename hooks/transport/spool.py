"""Records on disk, in order, in bounded space: what a transport falls back on, and a way to record a run.

A directory of numbered segments (`segment.py`). Each is synced when it is full or closed. When the directory outgrows
its cap, the oldest segment goes and its records are counted as dropped. A reader passes over a torn or damaged record
and counts it, too; a writer never appends after one. A segment that cannot be read now stays, to be read later.
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport import segment
from trimtab.hooks.wire import decode

CAP_BYTES = 64 << 20
SEGMENT_BYTES = 1 << 20
_SUFFIX = ".spool"
_LOCK = "lock"


class Spool:
    """One writer's directory, which the same process also reads from the oldest record on. Not thread-safe.

    But for `claim`, no method raises for what the disk does: a record that could not be written is reported as False,
    and so is any record while another process has the directory, or after closing. In a forked child it is closed.
    """

    def __init__(self, directory: Path, *, cap_bytes: int = CAP_BYTES, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = directory
        self.dropped = 0
        """Records lost: damaged, or in segments that the cap deleted."""
        self.unread: OSError | None = None
        """Why the latest `peek` could not tell whether there is a record; None where it could."""
        self._cap_bytes, self._segment_bytes = cap_bytes, segment_bytes
        self._segments: deque[Path] = deque()
        self._lock: int | None = None
        self._file: int | None = None
        self._size = 0
        self._offset = 0
        """Where reading goes on in the oldest segment."""
        self._end = 0
        """Where the record ends that `peek` gave; 0 for none."""
        self._closed = False
        _SPOOLS.add(self)

    @property
    def claimed(self) -> bool:
        """Whether this process has the directory."""
        return self._lock is not None

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
        self._lock, self._offset, self._end = lock, 0, 0

    def append(self, payload: bytes) -> bool:
        """Write one record at the end; False where the disk did not take it, and then nothing of it stays."""
        if self._closed:
            return False
        try:
            file = self._open() if self._file is None else self._file
            record = segment.framed(payload)
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
        """The oldest record that was not popped; None where there is none, and where `unread` says why that is not
        known now."""
        self.unread = None
        try:
            if self._lock is None and not self._closed and self.directory.is_dir():
                self.claim()
            while self._segments and not self._closed:
                found = segment.find(self._segments[0], self._offset)
                self.dropped += found.damaged
                if found.payload is not None:
                    self._offset, self._end = found.start, found.end
                    return found.payload
                self._drop_oldest()
        except OSError as error:
            self.unread = error
        return None

    def pop(self) -> None:
        """Be done with the record that `peek` gave. That it cannot be read again meanwhile is no matter."""
        if not self._end:
            self.peek()
        if self._end:
            self._offset, self._end = self._end, 0

    def count(self) -> int:
        """Records that were not popped, as far as they can be read now."""
        records = 0
        for i, path in enumerate(self._segments):
            with suppress(OSError):
                records += sum(1 for _ in segment.payloads(path, 0 if i else self._offset))
        return records

    def sync(self) -> None:
        """Have what was written on the disk itself. Unlike all else, in any thread."""
        file = self._file
        if file is not None:
            with suppress(OSError):
                os.fsync(file)

    def close(self) -> None:
        """Sync what was written, take what was popped off the disk, and let another process have the directory."""
        self._end_segment()
        with suppress(OSError):
            self._cut_popped()
        self._let_go()

    def disown(self) -> None:
        """Close the copies that a forked child has of what its parent holds open, and leave the disk alone."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                os.close(file)
        self._let_go()

    def _let_go(self) -> None:
        self._closed = True
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                os.close(lock)

    def _cut_popped(self) -> None:
        if self._segments and self._offset:
            oldest = self._segments[0]
            rest = oldest.read_bytes()[self._offset :]
            if not rest:
                oldest.unlink()
                return
            scratch = oldest.with_suffix(".scratch")
            with scratch.open("wb") as file:
                file.write(rest)
                os.fsync(file.fileno())
            scratch.replace(oldest)

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
            self.dropped += segment.count(self._segments[0], self._offset)
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        if len(self._segments) == 1:
            self._end_segment()
        path = self._segments.popleft()
        self._offset = self._end = 0
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


_SPOOLS: WeakSet[Spool] = WeakSet()


def _disown_all() -> None:
    """A lock is held until the last copy of its descriptor is closed: a worker that outlives its trainer would keep
    the next one from the directory."""
    for spool in list(_SPOOLS):
        spool.disown()


os.register_at_fork(after_in_child=_disown_all)


def read_spool(directory: str | Path) -> Iterator[StepSummary]:
    """The step summaries in a spool directory, oldest first, but for torn and damaged ones.

    Raises:
        OSError: the directory, or a segment in it, cannot be read.
        ValueError: a record is whole, but no step summary of this version.
    """
    for path in _segments(Path(directory)):
        for payload in segment.payloads(path):
            yield decode(StepSummary, payload)


def _segments(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix == _SUFFIX and path.stem.isdigit())


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
