"""Step summaries as they come in.

Keys that a newer hook adds are ignored, at any depth; controls must exist. What is read is exactly what a later replay
reads back out of the ledger.
"""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from trimtab.api.portable import shown_text
from trimtab.api.problem import shortened
from trimtab.api.routes.common import Value
from trimtab.api.strict import strict_validator
from trimtab.hooks.controls import CONTROL_NAMES, ControlError, Controls, ControlValue, check_value, no_such_control
from trimtab.hooks.log_facts import MAX_KEYS
from trimtab.hooks.records import (
    MAX_NONFINITE,
    MAX_REFUSALS,
    MAX_SCALARS,
    MAX_SKETCHES,
    StepSummary,
    too_many,
)
from trimtab.storage.codec import SUMMARY

MAX_BATCH = 1000
"""Summaries in one request."""
MAX_SUMMARY = 1_000_000
"""Bytes of one summary, unpacked."""
_MOST = {
    "scalars": MAX_SCALARS,
    "nonfinite": MAX_NONFINITE,
    "sketches": MAX_SKETCHES,
    "refusals": MAX_REFUSALS,
    "overrides": len(CONTROL_NAMES),
    "capabilities.controls": len(CONTROL_NAMES),
    "log.censored": MAX_KEYS,
    "log.vanished": MAX_KEYS,
}
"""Entries, counted before any is looked at: each that is wrong would cost a thousand bytes to tell of."""


def _known_names(applied: Any) -> Any:
    """Refuse controls that do not exist, which a record that ignores unknown keys would lose."""
    for name in applied if isinstance(applied, dict) else ():
        if name not in CONTROL_NAMES:
            raise ControlError(no_such_control(shown_text(str(name))))
    return applied


def _possible(overrides: dict[str, ControlValue]) -> dict[str, ControlValue]:
    for name, value in overrides.items():
        check_value(shown_text(name), value)
    return overrides


MOST_ERRORS = 1000
"""Mistakes that are looked at one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSummary(StepSummary):
    """A step summary in a request."""

    __pydantic_config__ = ConfigDict(extra="ignore")

    applied: Annotated[Controls, BeforeValidator(_known_names)] = field(default_factory=Controls)
    overrides: Annotated[dict[str, Value], AfterValidator(_possible)] = field(default_factory=dict)


_SUMMARY: TypeAdapter[ReportedSummary] = TypeAdapter(ReportedSummary)
_ONE = strict_validator(_SUMMARY)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_ITEMS: TypeAdapter[list[Any]] = TypeAdapter(Annotated[list[Any], Field(max_length=MAX_BATCH)])
_FIELDS = tuple(one.name for one in fields(StepSummary))


def schemas() -> dict[str, Any]:
    """Schemas of a reported summary and of its parts, by name, for the description of the API."""
    whole = _SUMMARY.json_schema(ref_template="#/components/schemas/{model}")
    parts = whole.pop("$defs", {})
    written: dict[str, Any] = json.loads(to_json({**parts, "ReportedSummary": whole}, inf_nan_mode="strings"))
    return written


def summary_in(body: bytes) -> StepSummary:
    """The summary that a body holds. Raises `RequestValidationError`, which names the fields that are wrong."""
    try:
        return _plain(_ONE.validate_json(body))
    except ValidationError as error:
        with contextlib.suppress(ValidationError):
            _check_size(_ANY.validate_json(body))  # of what is too much, none is looked at
        raise _refusal(error) from error


def summaries_in(body: bytes) -> list[StepSummary | RequestValidationError]:
    """The summaries of a batch, a JSON list: one that cannot be read takes nothing else with it.

    Raises:
        RequestValidationError: the body is no list of at most `MAX_BATCH`.
    """
    try:
        items = _ITEMS.validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from error
    return [_item(item, large=len(body) > MAX_SUMMARY) for item in items]


def _item(item: Any, *, large: bool) -> StepSummary | RequestValidationError:
    try:
        if large and len(to_json(item)) > MAX_SUMMARY:
            raise _too_large("", f"is larger than {MAX_SUMMARY} bytes; report less in a step")
        _check_size(item)
        return _plain(_ONE.validate_python(item))
    except ValidationError as error:
        return _refusal(error)
    except RequestValidationError as error:
        return error


def _check_size(raw: Any) -> None:
    """Raise `RequestValidationError` where a part of a summary has more entries than it may have."""
    for name, most in _MOST.items():
        part = raw
        for key in name.split("."):
            part = part.get(key) if isinstance(part, dict) else None
        if isinstance(part, dict | list) and len(part) > most:
            raise _too_large(name, too_many(len(part), most))


def _too_large(name: str, message: str) -> RequestValidationError:
    return RequestValidationError([{"type": "too_long", "loc": ("body", name), "msg": message, "input": None}])


def _refusal(error: ValidationError) -> RequestValidationError:
    """The framework's own error, so that there is one shape."""
    if error.error_count() > MOST_ERRORS:
        message = f"has {error.error_count()} mistakes; this is no step summary"
        return RequestValidationError([{"type": "too_many", "loc": ("body",), "msg": message, "input": None}])
    found = shortened(error.errors(include_url=False))
    return RequestValidationError([{**detail, "loc": ("body", *detail["loc"])} for detail in found])


def _plain(reported: ReportedSummary) -> StepSummary:
    """The record that the ledger will give back: of the plain type, and already checked."""
    if any(isinstance(value, float) and not math.isfinite(value) for value in reported.overrides.values()):
        return SUMMARY.decode(SUMMARY.encode(reported))  # an override may be a name as well, so infinity reads as one
    plain = object.__new__(StepSummary)
    for name in _FIELDS:
        object.__setattr__(plain, name, getattr(reported, name))
    return plain
