"""The wire format of protocol buffers, as much of it as two logs need (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Field = tuple[int, int, int | bytes]
"""Number, wire type, and the value: an integer, or the bytes of anything else."""


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message, in their order.

    Raises:
        ValueError: `data` is no message.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, kind, value
            continue
        if kind == BYTES:
            length, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} is none")
        if at + length > end:
            raise ValueError("a field is longer than its message")
        yield tag >> 3, kind, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7
    raise ValueError("a number without an end")


def as_bytes(value: int | bytes) -> bytes:
    """The bytes of a field. Raises ValueError where it is a number."""
    if isinstance(value, int):
        raise ValueError("a number where bytes should be")
    return value


def as_signed(value: int | bytes) -> int:
    """An int64 as it was written. Raises ValueError where it is none."""
    if not isinstance(value, int):
        raise ValueError("bytes where a number should be")
    return value - (1 << 64) if value >= 1 << 63 else value


def as_double(value: int | bytes) -> float:
    """A float64. Raises ValueError where it is none."""
    return _unpacked("<d", 8, value)


def as_float(value: int | bytes) -> float:
    """A float32. Raises ValueError where it is none."""
    return _unpacked("<f", 4, value)


def _unpacked(form: str, length: int, value: int | bytes) -> float:
    if isinstance(value, int) or len(value) != length:
        raise ValueError(f"no {length} bytes of a number")
    (number,) = struct.unpack(form, value)
    return float(number)
