"""Numbers as loggers write them."""

from __future__ import annotations

import json
import math
from typing import Any

from trimtab.api.tail.source import Skipped

_SPELLED = {
    "nan": math.nan,
    "inf": math.inf,
    "infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
}
MOST_KEYS = 4096
"""Numbers in one row."""


def number(value: Any) -> float | None:
    """A number, or a name of one that is not finite, as a float; None for anything else, truth values included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        return _SPELLED.get(value.strip().lower())
    return None


def numbers(record: Any, skipped: Skipped, *, prefix: str = "") -> dict[str, float]:
    """The numbers in an object, those of objects inside it under `outer/inner`.

    Null is not there: orjson writes it for NaN, and TRL for a mean of no value. So a key that is null has vanished.
    """
    found: dict[str, float] = {}
    for key, value in record.items() if isinstance(record, dict) else ():
        if value is None:
            continue
        if isinstance(value, dict) and not prefix.count("/") > 3:
            found |= numbers(value, skipped, prefix=f"{prefix}{key}/")
        elif (read := number(value)) is not None and len(found) < MOST_KEYS:
            found[f"{prefix}{key}"] = read
        else:
            skipped.not_numbers += 1
    return found


def step_of(value: Any) -> int | None:
    """A step, which is a whole number from 0 on that a float holds, or its decimal digits; None for anything else."""
    if isinstance(value, str):
        value = float(value) if value.isascii() and value.isdecimal() else None
    read = number(value)
    return int(read) if read is not None and read.is_integer() and 0 <= read < 2**53 else None


def time_of(value: Any) -> float | None:
    """A time, which is finite; None for anything else."""
    read = number(value)
    return read if read is not None and math.isfinite(read) else None


def parsed(text: bytes | str) -> Any:
    """JSON, with the tokens NaN and Infinity that Python writes. Raises ValueError for anything else."""
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:
        raise ValueError("nested more deeply than any record") from None


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < 400 else math.copysign(math.inf, -1 if digits[0] == "-" else 1)
