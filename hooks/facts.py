"""A step's summary without what was measured: what is in effect, and what the trainer says of the step beside its
tensors, of which whatever cannot be is left out alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from trimtab.hooks.guard import Guard
from trimtab.hooks.overlay import Overlay
from trimtab.hooks.records import (
    MAX_NAME_LENGTH,
    MAX_REFUSALS,
    MAX_SCALARS,
    RecordError,
    StepSummary,
    check_count,
    check_scalar,
    check_staleness,
    too_many,
)


def unmeasured(
    guard: Guard, overlay: Overlay, facts: Mapping[str, Any], *, step: Any, **certain: Any
) -> StepSummary | None:
    """The summary, with the other fields in `certain`; None, counted and logged, where no such step can be."""
    accepted = overlay.accepted
    fields = {
        "applied": overlay.controls,
        "generation": accepted.generation,
        "overrides": accepted.overrides,
        "refusals": accepted.refusals[-MAX_REFUSALS:],
    }
    fields |= certain | usable_facts(guard, **facts)
    return guard.taken("end_step", fields, lambda given: StepSummary(step=int(step), **given))


def usable_facts(
    guard: Guard, *, scalars: Mapping[str, Any] | None, policy_version: Any, staleness: Any, pass_index: Any
) -> dict[str, Any]:
    """Fields of `StepSummary`. One that cannot be what it is called is counted and logged, and was not observed."""
    return {
        "scalars": _numbers(guard, scalars or {}),
        "policy_version": guard.taken("policy_version", policy_version, int),
        "staleness": guard.taken("staleness", staleness, _age),
        "pass_index": guard.taken("pass_index", pass_index, _pass) or 0,
    }


def _numbers(guard: Guard, scalars: Mapping[str, Any]) -> dict[str, float]:
    """Those that can be taken, and no more of them than a summary may have: the first."""
    numbers: dict[str, float] = {}
    left_out = 0
    for name, value in scalars.items():
        if len(numbers) == MAX_SCALARS:
            left_out += value is not None
            continue
        number = guard.taken(f"scalars.{str(name)[:MAX_NAME_LENGTH]}", value, partial(_number, name))
        if number is not None:
            numbers[name] = number
    if left_out:
        most = too_many(MAX_SCALARS + left_out, MAX_SCALARS)
        guard.swallow("scalars", RecordError(f"scalars: {most}; the last {left_out} are left out"))
    return numbers


def _number(name: str, value: Any) -> float:
    number = float(value)
    check_scalar(name, number)
    return number


def _pass(value: Any) -> int:
    index = int(value)
    check_count("pass_index", index)
    return index


def _age(value: Any) -> float:
    age = float(value)
    check_staleness(age)
    return age
