"""The framing of W&B's transaction log, which is LevelDB's: blocks of 32 KiB, records of one or more fragments.

A file begins with `:W&B`, E1 BE and a version, 7 bytes. A fragment is CRC-32 of its type and data (u32), the length of
the data (u16), its type (u8: 1 whole, 2 first, 3 middle, 4 last), and the data. None reaches over the end of a block.
A damaged fragment costs the rest of its block and the record that it is a part of.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

MAGIC = b":W&B"
HEADER = 7
"""Bytes of a file's header, and of a fragment's."""
BLOCK = 32768
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragments:
    """What was found in a part of a log."""

    records: tuple[bytes, ...]
    end: int
    """Offset behind the last whole record, or behind what can never be read."""
    damaged: int = 0
    begun: bool = False
    """A record begins behind `end`, and its end is not here."""


def records(data: bytes, offset: int) -> Fragments:
    """The whole records of `data`, which begins at `offset` of the file, at the beginning of a fragment."""
    found: list[bytes] = []
    at, end, damaged = 0, 0, 0
    parts: list[bytes] | None = None
    while at < len(data):
        room = BLOCK - (offset + at) % BLOCK
        if room < HEADER:  # padding
            at += room
            end = min(at, len(data)) if parts is None else end
            continue
        if at + HEADER > len(data):
            break
        crc, length, kind = struct.unpack_from("<IHB", data, at)
        if not (crc or length or kind):  # nothing was written here yet
            break
        fits = _WHOLE <= kind <= _LAST and HEADER + length <= room
        if fits and at + HEADER + length > len(data):
            break
        piece = data[at + HEADER : at + HEADER + length]
        if not fits or zlib.crc32(piece, zlib.crc32(bytes((kind,)))) != crc:
            if at + room > len(data):  # it is passed over once the rest of its block is here
                break
            damaged, parts = damaged + 1, None
            at += room
            end = at
            continue
        at += HEADER + length
        if kind in (_WHOLE, _FIRST):
            damaged += parts is not None  # a record without its end
            parts = [piece]
        elif parts is not None:
            parts.append(piece)
        if kind in (_WHOLE, _LAST):
            found += [b"".join(parts)] if parts is not None else []
            parts = None
        end = at if parts is None else end
    return Fragments(records=tuple(found), end=end, damaged=damaged, begun=parts is not None)
