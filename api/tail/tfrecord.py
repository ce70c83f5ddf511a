"""TensorFlow's record framing: u64 length, its u32 masked CRC32C, payload, its u32 masked CRC32C.

A record whose payload is damaged is passed over; where the length is, the next frame is looked for, since what lies
behind is as good as any. What is not whole yet is left for the next look.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_POLYNOMIAL = 0x82F63B78
_HEADER, _FOOTER = 12, 4
_MASK = 0xA282EAD8


def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C (Castagnoli) of `data`, rotated and shifted as the format has it."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One frame."""

    payload: bytes | None
    """None where it is damaged, or too large to be looked at."""
    end: int
    """Offset in the data behind it; may lie behind the data, where the record was too large for it."""
    damaged: bool = False


def records(data: bytes, *, left: int) -> list[Record]:
    """The whole records in `data`, which `left` more bytes of the file follow."""
    found: list[Record] = []
    at = 0
    while at + _HEADER <= len(data):
        length = _length(data, at)
        if length is None:
            at = _next_frame(data, at + 1)
            found.append(Record(payload=None, end=at, damaged=True))
            continue
        start, end = at + _HEADER, at + _HEADER + length + _FOOTER
        if end > len(data):
            if not found and end <= len(data) + left:  # it fills more than one look
                found.append(Record(payload=None, end=end))
            break
        payload = data[start : end - _FOOTER]
        whole = masked_crc(payload) == struct.unpack_from("<I", data, end - _FOOTER)[0]
        found.append(Record(payload=payload if whole else None, end=end, damaged=not whole))
        at = end
    return found


def _length(data: bytes, at: int) -> int | None:
    """The length that a header tells; None where there is no header."""
    (length, crc) = struct.unpack_from("<QI", data, at)
    return length if length < 1 << 40 and masked_crc(data[at : at + 8]) == crc else None


def _next_frame(data: bytes, at: int) -> int:
    """Where the next header may be; near the end, what could be the beginning of one is left."""
    while at + _HEADER <= len(data):
        zeros = data.find(b"\0\0\0\0\0", at + 3)  # of a length below 16 MiB, five bytes are 0
        if zeros < 0 or zeros - 3 + _HEADER > len(data):
            return max(at, len(data) - _HEADER + 1)
        for start in range(max(zeros - 3, at), min(zeros + 3, len(data) - _HEADER + 1)):
            if _length(data, start) is not None:
                return start
        at = zeros - 1 if zeros - 1 > at else at + 1
    return max(at, len(data) - _HEADER + 1)
