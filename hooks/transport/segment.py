"""How records lie in a segment of a spool: one after the other, each with what tells it from damage.

A record is its length and CRC-32 (big-endian, 4 bytes each) and then its bytes, of which there is at least one.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct(">II")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The first whole record from some offset on."""

    payload: bytes | None
    """None where there is none up to the end."""
    start: int
    end: int
    damaged: int
    """Records before it that are torn or damaged; at least one for each stretch that is no record."""


def framed(payload: bytes) -> bytes:
    """The record of `payload`."""
    return _HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def find(segment: Path, offset: int) -> Found:
    """The first whole record at or behind `offset`. A file that is gone, or is none, has no records.

    Raises:
        OSError: the segment cannot be read now; what is in it is not known.
    """
    try:
        with segment.open("rb") as file:
            file.seek(offset)
            rest = file.read(_HEADER.size)
            if len(rest) == _HEADER.size:
                length, _ = _HEADER.unpack(rest)
                rest += file.read(min(length, os.fstat(file.fileno()).st_size))
            payload = _at(rest, 0)
            if payload is None:
                rest += file.read()
    except (FileNotFoundError, IsADirectoryError, io.UnsupportedOperation):
        return Found(payload=None, start=offset, end=offset, damaged=0)
    if payload is not None:
        return Found(payload=payload, start=offset, end=offset + _HEADER.size + len(payload), damaged=0)
    start = _behind_damage(rest)
    payload = _at(rest, start)
    end = start if payload is None else start + _HEADER.size + len(payload)
    return Found(payload=payload, start=offset + start, end=offset + end, damaged=_records_in(rest[:start]))


def payloads(segment: Path, offset: int = 0) -> Iterator[bytes]:
    """The whole records from `offset` on.

    Raises:
        OSError: the segment cannot be read now.
    """
    while (found := find(segment, offset)).payload is not None:
        yield found.payload
        offset = found.end


def count(segment: Path, offset: int = 0) -> int:
    """Records from `offset` on, damaged ones too.

    Raises:
        OSError: the segment cannot be read now.
    """
    records = 0
    while (found := find(segment, offset)).payload is not None:
        records += found.damaged + 1
        offset = found.end
    return records + found.damaged


def _at(content: bytes, start: int) -> bytes | None:
    """The payload of the whole record that begins at `start`."""
    if start + _HEADER.size >= len(content):
        return None
    length, checksum = _HEADER.unpack_from(content, start)
    first = start + _HEADER.size
    if not 0 < length <= len(content) - first:
        return None
    payload = content[first : first + length]
    return payload if zlib.crc32(payload) == checksum else None


def _behind_damage(content: bytes) -> int:
    """Where the next whole record begins, whether or not the damaged one's length is right; else the end."""
    # A length below 16 MiB begins with a zero byte, which no JSON has: there are few places to look at.
    start = content.find(b"\0", 1)
    while start >= 0:
        if _at(content, start) is not None:
            return start
        start = content.find(b"\0", start + 1)
    return len(content)


def _records_in(stretch: bytes) -> int:
    """How many records a damaged stretch was: as many as their lengths say, where they add up to it, else one."""
    start = records = 0
    while start + _HEADER.size < len(stretch):
        length, _ = _HEADER.unpack_from(stretch, start)
        if not length:
            break
        start += _HEADER.size + length
        records += 1
    return records if start == len(stretch) else min(1, len(stretch))
