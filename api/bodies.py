"""Compressed request bodies, unpacked up to a limit."""

from __future__ import annotations

import zlib
from http import HTTPStatus

import zstandard
from fastapi import Request

from trimtab.api.problem import ApiError, is_json

MAX_UNPACKED = 16_000_000
"""Bytes."""
MAX_WINDOW = 1 << 24
"""Bytes that Zstandard may look back, and has to keep for it."""
PIECE = 512
"""Bytes that are unpacked at a time: a piece of the worst bomb is as large as the limit."""
ENCODINGS = ("identity", "gzip", "zstd")


async def body_of(request: Request, most: int = MAX_UNPACKED) -> bytes:
    """The body, unpacked as its header Content-Encoding says.

    Raises:
        ApiError: an encoding that is not one of `ENCODINGS` (415), a body that is not in it (422), or one that is
            larger than `most` bytes when it is unpacked (413); or a kind of body that is not JSON (422).
    """
    kind = request.headers.get("content-type", "")
    if kind and not is_json(kind):
        message = "the body was not read as JSON; send the header content-type: application/json"
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "Content-Type", message, kind)
    body = await request.body()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return body
    if encoding not in ENCODINGS:
        message = f"is none of {', '.join(ENCODINGS)}; send the body as it is, or in one of them"
        raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding", message, encoding)
    try:
        unpacked = _gunzipped(body, most) if encoding == "gzip" else _unzstd(body, most)
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "body", f"is not {encoding}: {error}") from error
    if len(unpacked) > most:
        message = f"is larger than {most} bytes when it is unpacked; send less at a time"
        raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body", message)
    return unpacked


def _gunzipped(body: bytes, most: int) -> bytes:
    """One member, and not a byte behind it."""
    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    unpacked = stream.decompress(body, most + 1)
    if len(unpacked) <= most and (not stream.eof or stream.unused_data):
        raise EOFError("it ends too early" if not stream.eof else "there is more behind its end")
    return unpacked


def _unzstd(body: bytes, most: int) -> bytes:
    """One frame, and not a byte behind it. The size that it announces is not believed."""
    stream = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
    unpacked = bytearray()
    for start in range(0, len(body), PIECE):
        unpacked += stream.decompress(body[start : start + PIECE])
        if len(unpacked) > most:
            return bytes(unpacked)
        if stream.eof and (stream.unused_data or start + PIECE < len(body)):
            raise EOFError("there is more behind its end")
    if not stream.eof:
        raise EOFError("it ends too early")
    return bytes(unpacked)
