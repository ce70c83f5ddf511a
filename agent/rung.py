"""One remedy that the agent has put in force."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.hooks.controls import ControlValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """The remedy, what it overrides, and since when."""

    remedy: str
    overrides: dict[str, ControlValue]
    """What it added."""
    incident: str
    """Fingerprint of the incident that asked for it."""
    generation: int
    """Generation that brought it."""
    applied_tick: int | None = None
    """Summary in which the trainer first reported it in effect; verification counts from here."""
