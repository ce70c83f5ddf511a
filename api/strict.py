"""Numbers are numbers: neither a boolean nor text is one, whatever a lenient reader makes of them.

A number that is not finite is written as its name, `"NaN"` or `"Infinity"`, and as nothing else: 1e400, which no float
holds, is a mistake and no infinity. 3.0 is a whole number, as in JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import PydanticCustomError, SchemaValidator
from pydantic_core.core_schema import (
    CoreSchema,
    float_schema,
    int_schema,
    literal_schema,
    no_info_after_validator_function,
    union_schema,
)

from trimtab.hooks.wire import NON_FINITE


def strict_validator(adapter: TypeAdapter[Any]) -> SchemaValidator:
    """Reads what the adapter does, but takes nothing but numbers for numbers. As quick as the adapter."""
    return SchemaValidator(_strict(adapter.core_schema))


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if isinstance(schema, tuple):
        return tuple(_strict(part) for part in schema)
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "float":
        return _FLOAT
    if schema.get("type") == "int":
        return _INT
    if schema.get("type") in ("tuple", "list"):  # one error, and not one for each of a million items
        schema = {**schema, "fail_fast": True}
    return {name: part if name == "metadata" else _strict(part) for name, part in schema.items()}


def _whole(value: float) -> int:
    if not value.is_integer():
        raise PydanticCustomError("int_from_float", "should be a whole number")
    return int(value)


def _either(*schemas: CoreSchema, kind: str, message: str) -> CoreSchema:
    return union_schema(list(schemas), mode="left_to_right", custom_error_type=kind, custom_error_message=message)


_FLOAT = _either(
    float_schema(strict=True, allow_inf_nan=False),  # 1e400 is no infinity, and NaN is no JSON
    no_info_after_validator_function(NON_FINITE.__getitem__, literal_schema(list(NON_FINITE))),
    kind="number",
    message='should be a valid number; one that is not finite is written as "NaN", "Infinity" or "-Infinity"',
)
_INT = _either(
    int_schema(strict=True),
    no_info_after_validator_function(_whole, float_schema(strict=True)),
    kind="whole_number",
    message="should be a valid integer",
)


def check_numbers(kind: Any, raw: Any, path: str = "") -> None:
    """Look through plain JSON data that a dataclass is to be read from.

    Raises:
        ValueError: a boolean or text where a number should be; the message names the field.
    """
    for where, value in _stray(kind, raw, path):
        raise ValueError(f"{where}: {value!r} is not a number")


def _stray(kind: Any, raw: Any, path: str) -> Iterator[tuple[str, Any]]:
    origin, args = get_origin(kind), get_args(kind)
    if kind in (int, float):
        if isinstance(raw, bool) or (isinstance(raw, str) and not (kind is float and raw in NON_FINITE)):
            yield path, raw
    elif is_dataclass(kind) and isinstance(raw, dict):
        hints = get_type_hints(kind)
        for one in fields(kind):
            if one.name in raw:
                yield from _stray(hints[one.name], raw[one.name], f"{path}.{one.name}" if path else one.name)
    elif origin is dict and isinstance(raw, dict):
        for name, value in raw.items():
            yield from _stray(args[1], value, f"{path}.{name}")
    elif origin is tuple and isinstance(raw, list):
        for index, value in enumerate(raw):
            yield from _stray(args[0], value, f"{path}.{index}")
    elif origin in (Union, UnionType):
        numbers = [one for one in args if one is not type(None)]
        if len(numbers) == 1 and raw is not None:
            yield from _stray(numbers[0], raw, path)
