"""Compressed bodies: what unpacks, and what does not."""

import asyncio
import gzip
import zlib
from collections.abc import Callable

import pytest
import zstandard
from fastapi import Request

from trimtab.api.bodies import MAX_UNPACKED, body_of
from trimtab.api.problem import ApiError

TEXT = b'{"job": "run"}'


def read(body: bytes, encoding: str | None) -> bytes:
    headers = [] if encoding is None else [(b"content-encoding", encoding.encode())]

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    return asyncio.run(body_of(Request({"type": "http", "headers": headers}, receive)))


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (TEXT, None),
        (TEXT, "identity"),
        (gzip.compress(TEXT, mtime=0), "gzip"),
        (gzip.compress(TEXT, mtime=0), " GZip "),
        (zstandard.compress(TEXT), "zstd"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(TEXT), "zstd"),
    ],
)
def test_a_body_is_read_as_its_header_says(body: bytes, encoding: str | None) -> None:
    assert read(body, encoding) == TEXT


@pytest.mark.parametrize(
    ("body", "encoding", "status", "told"),
    [
        (TEXT, "br", 415, "is none of identity, gzip, zstd"),
        (TEXT, "gzip, zstd", 415, "is none of"),
        (TEXT, "gzip", 422, "is not gzip"),
        (TEXT, "zstd", 422, "is not zstd"),
        (zlib.compress(TEXT), "gzip", 422, "is not gzip"),
        (gzip.compress(TEXT, mtime=0)[:-4], "gzip", 422, "it ends too early"),
        (gzip.compress(TEXT, mtime=0) * 2, "gzip", 422, "more behind its end"),
        (zstandard.compress(TEXT)[:-4], "zstd", 422, "it ends too early"),
        (zstandard.compress(TEXT) + b"x", "zstd", 422, "more behind its end"),
        (b"", "gzip", 422, "it ends too early"),
        (b"", "zstd", 422, "it ends too early"),
    ],
)
def test_what_is_not_what_its_header_says_is_refused(body: bytes, encoding: str, status: int, told: str) -> None:
    with pytest.raises(ApiError, match=told) as refused:
        read(body, encoding)
    assert refused.value.status == status


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_bomb_is_refused_before_it_is_unpacked(compress: Callable[[bytes], bytes]) -> None:
    encoding = "gzip" if compress is gzip.compress else "zstd"
    assert len(read(compress(bytes(MAX_UNPACKED)), encoding)) == MAX_UNPACKED
    bomb = compress(bytes(20 * MAX_UNPACKED))
    assert len(bomb) < 1_000_000
    with pytest.raises(ApiError, match=f"larger than {MAX_UNPACKED} bytes") as refused:
        read(bomb, encoding)
    assert refused.value.status == 413
