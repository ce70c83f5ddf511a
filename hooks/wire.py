"""Records as JSON, with the standard library alone: a training process has no pydantic.

The format is the one that `pydantic.TypeAdapter` reads and, with `ser_json_inf_nan="strings"`, writes: a dataclass is
an object, a tuple an array, and a float that is not finite one of the strings "NaN", "Infinity" and "-Infinity". A
field with a default may be missing, and `decode` ignores fields that it does not know. The service does so only at the
top level of a summary: a control or a count that it does not know is refused, never silently left out. So a newer hook
may add a field to `StepSummary`, and a newer agent one to any record, without losing the other side.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class WireError(ValueError):
    """Not the record it should be; the message names the field, the value and what is expected."""


def encode(record: Any) -> bytes:
    """A dataclass instance as UTF-8 JSON."""
    return json.dumps(_plain(record), allow_nan=False, separators=(",", ":")).encode()


def decode(kind: type[T], data: bytes | str) -> T:
    """The record of the dataclass `kind` in `data`.

    Raises:
        WireError: `data` is not JSON, or a field is missing or of the wrong type.
        ValueError: the record contradicts itself; its own check says how.
    """
    try:
        value = json.loads(data)
    except ValueError as error:
        raise WireError(f"{kind.__name__}: not JSON: {error}") from None
    except RecursionError:
        raise WireError(f"{kind.__name__}: nested more deeply than any record") from None
    return decode_value(kind, value)


def decode_value(kind: type[T], value: Any) -> T:
    """The record of the dataclass `kind` in `value`, which `json.loads` gave; raises what `decode` raises."""
    record: T = _typed(kind, value, kind.__name__)
    return record


def _plain(value: Any) -> Any:
    """`value` as what `json.dumps` takes."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _name_of(value)
    if isinstance(value, tuple):
        if set(map(type, value)) <= {int, str}:  # thousands of bins: leave them to the encoder
            return value
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name, _, _ in _members(type(value))}
    return value


def _name_of(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@cache
def _members(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type, and whether it must be there, of each field of a dataclass."""
    hints = get_type_hints(kind)
    return tuple((f.name, hints[f.name], _required(f)) for f in fields(kind))


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _typed(kind: Any, value: Any, path: str) -> Any:
    """`value` as an instance of the type `kind`."""
    if is_dataclass(kind):
        return _record(kind, value, path)
    origin, args = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(value, dict):
        return {_key(args[0], key, path): _typed(args[1], item, f"{path}.{key}") for key, item in value.items()}
    if origin is tuple and isinstance(value, list):
        if args[0] in (int, str) and set(map(type, value)) <= {args[0]}:
            return tuple(value)
        return tuple(_typed(args[0], item, f"{path}.{index}") for index, item in enumerate(value))
    if origin in (Union, UnionType):
        return _union(args, value, path)
    if origin is Literal and value in args:
        return value
    if origin is None and (scalar := _scalar(kind, value)) is not _WRONG:
        return scalar
    raise WireError(f"{path}: {value!r} is not {getattr(kind, '__name__', kind)}")


def _key(kind: Any, key: Any, path: str) -> Any:
    """A key of an object: a string in JSON, whatever it stands for."""
    if kind is not int or isinstance(key, int):
        return key
    if not key.removeprefix("-").isdecimal():
        raise WireError(f"{path}: {key!r} is not int")
    return int(key)


def _record(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise WireError(f"{path}: {value!r} is not an object")
    given = {}
    for name, member, required in _members(kind):
        if name in value:
            given[name] = _typed(member, value[name], f"{path}.{name}")
        elif required:
            raise WireError(f"{path}.{name}: is missing")
    return kind(**given)


def _union(kinds: tuple[Any, ...], value: Any, path: str) -> Any:
    """The first scalar type that fits as it is, else the dataclass or container among `kinds`."""
    for kind in kinds:
        if get_origin(kind) is None and not is_dataclass(kind):
            scalar = _scalar(kind, value)
            if scalar is not _WRONG:
                return scalar
    for kind in kinds:
        if get_origin(kind) is not None or is_dataclass(kind):
            return _typed(kind, value, path)
    raise WireError(f"{path}: {value!r} is none of {', '.join(kind.__name__ for kind in kinds)}")


_WRONG = object()


def _scalar(kind: Any, value: Any) -> Any:
    """`value` as the scalar type `kind`, or `_WRONG`. A bool is never a number."""
    if kind is NoneType:
        return None if value is None else _WRONG
    if isinstance(value, bool):
        return value if kind is bool else _WRONG
    if kind is float:
        if isinstance(value, str):
            return NON_FINITE.get(value, _WRONG)
        try:
            return float(value) if isinstance(value, int | float) else _WRONG
        except OverflowError:  # an integer beyond the largest float
            return _WRONG
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value) if value in {member.value for member in kind} else _WRONG
    if kind in (int, str):
        return value if isinstance(value, kind) else _WRONG
    return value if kind is Any else _WRONG
