"""What every remedy is: a pure function from what is in effect and possible to overrides, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimtab.hooks.controls import Capabilities, Controls, ControlValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A remedy that cannot be applied, and why."""

    reason: str


Remedy = Callable[[Controls, Capabilities], dict[str, ControlValue] | Refusal]
"""`propose(applied, capabilities)`: the overrides that the remedy adds, or why it cannot."""


def offered(
    overrides: dict[str, ControlValue], applied: Controls, capabilities: Capabilities
) -> dict[str, ControlValue] | Refusal:
    """`overrides`, unless all of them are in effect already, the trainer cannot set one of them, or they contradict the
    rest."""
    missing = {name: value for name, value in overrides.items() if getattr(applied, name) != value}
    if not missing:
        return Refusal(reason="already in effect")
    for name, value in missing.items():
        reason = capabilities.refusal(name, value)
        if reason is not None:
            return Refusal(reason=reason)
    conflict = applied.overlaid(overrides).conflict()
    return overrides if conflict is None else Refusal(reason=conflict[1])
