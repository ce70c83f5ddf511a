"""Payloads and observations as bytes.

A payload is JSON text, compressed with Zstandard where that makes it smaller; text that was never compressed is told
from a compressed one by its first byte.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

import zstandard

LEVEL = 1
SMALL = 512
"""Bytes below which compressing does not pay."""
_MAGIC = b"\x28\xb5\x2f\xfd"


class _Codecs(threading.local):
    """A compressor may not be used by two threads at once, and is dear to make."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_codecs = _Codecs()


def packed(text: str) -> bytes:
    """The text as it is stored."""
    data = text.encode()
    return data if len(data) < SMALL else _codecs.compressor.compress(data)


def unpacked(data: bytes) -> str:
    """The text that was stored."""
    return (_codecs.decompressor.decompress(data) if data.startswith(_MAGIC) else bytes(data)).decode()


def compressed(data: bytes) -> bytes:
    """Bytes that are smaller, as a rule."""
    return _codecs.compressor.compress(data)


def decompressed(data: bytes) -> bytes:
    """The bytes that were compressed."""
    return _codecs.decompressor.decompress(data)


def packed_floats(values: Sequence[float]) -> bytes:
    """64-bit little-endian floats; NaN and the infinities are what they are."""
    return struct.pack(f"<{len(values)}d", *values)


def unpacked_floats(data: bytes) -> tuple[float, ...]:
    """The numbers that were packed."""
    return struct.unpack(f"<{len(data) // 8}d", data)
