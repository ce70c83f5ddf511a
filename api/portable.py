"""What may stand in a record that is stored: integers and text that survive JSON and every database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import orjson

from trimtab.hooks.records import RecordError

MAX_INTEGER = 2**53 - 1
"""Larger integers do not survive JSON in every language, nor the float that a metric is."""
MAX_ROW = 2**31 - 1
"""The largest number of a row, in the databases that count rows in 32 bits."""
NUL = "\0"
ESCAPED_NUL = b"\\u0000"


def check_portable(record: Any) -> None:
    """Look through a record of dataclasses, mappings and tuples, at any depth.

    Raises:
        RecordError: an integer beyond `MAX_INTEGER`, text with half of a surrogate pair, which is no UTF-8, or with a
            NUL, which PostgreSQL does not take; the message names the field.
    """
    try:
        # Refuses the first two, and more, in a tenth of the time.
        written = orjson.dumps(record, option=orjson.OPT_STRICT_INTEGER)
    except orjson.JSONEncodeError:
        written = ESCAPED_NUL
    if ESCAPED_NUL in written:
        _look_through(record, "")


def _look_through(value: Any, path: str) -> None:
    if isinstance(value, str):
        if not is_text(value):
            raise RecordError(f"{path}: {shown_text(value)} has half of a surrogate pair, which is not text")
        if NUL in value:
            raise RecordError(f"{path}: {value!r} has a NUL character, which cannot be stored")
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise RecordError(f"{path}: is not below 2^53 in size; larger integers do not survive JSON")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _look_through(str(name), path)
            _look_through(item, _inside(path, str(name)))
    elif isinstance(value, tuple):
        if set(map(type, value)) == {int}:  # thousands of bins or counts
            _look_through(max(value, key=abs), path)
        else:
            for index, item in enumerate(value):
                _look_through(item, _inside(path, str(index)))
    elif is_dataclass(value):
        for field in fields(value):
            _look_through(getattr(value, field.name), _inside(path, field.name))


def is_text(text: str) -> bool:
    """Whether `text` can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown_text(text: str) -> str:
    """`text` with what UTF-8 cannot write as an escape, such as `\\udc80`."""
    return text.encode("utf-8", "backslashreplace").decode()


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
