"""What every remedy is: a pure function from what is in effect and possible to overrides, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimtab.hooks.controls import Capabilities, Controls, ControlValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a remedy may know of a run."""

    applied: Controls
    """In effect now."""
    capabilities: Capabilities
    staleness: float | None = None
    """Mean age of the sampled tokens, in weight versions."""
    checkpoint: str = ""
    """The best that was taken while the run was healthy, as `ATTEMPT:STEP`; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A remedy that cannot be applied, and why."""

    reason: str


Remedy = Callable[[Situation], dict[str, ControlValue] | Refusal]
"""`propose(situation)`: the overrides that the remedy adds, or why it cannot."""


def offered(overrides: dict[str, ControlValue], situation: Situation) -> dict[str, ControlValue] | Refusal:
    """`overrides`, unless all of them are in effect already, the trainer cannot set one of them, or they contradict the
    rest."""
    applied = situation.applied
    missing = {name: value for name, value in overrides.items() if getattr(applied, name) != value}
    if not missing:
        return Refusal(reason="already in effect")
    for name, value in missing.items():
        reason = situation.capabilities.refusal(name, value)
        if reason is not None:
            return Refusal(reason=reason)
    conflict = applied.overlaid(overrides).conflict()
    return overrides if conflict is None else Refusal(reason=conflict[1])


def offered_first(
    control: str, values: tuple[ControlValue, ...], situation: Situation, *, none: str
) -> dict[str, ControlValue] | Refusal:
    """The first of `values` that the control can be set to; `none` says why there was nothing to choose from."""
    refusal = Refusal(reason=none)
    for value in values:
        outcome = offered({control: value}, situation)
        if isinstance(outcome, dict):
            return outcome
        refusal = outcome
    return refusal
