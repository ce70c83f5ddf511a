"""Which part of a command a trainer accepts. The check stands at the trainer, so no agent can get past it, old or
wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab.hooks.controls import Capabilities, ControlError, Controls, ControlValue, check_value
from trimtab.hooks.records import Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The overrides in effect, and what was left out of them."""

    generation: int = 0
    """Generation of the command they came from; 0 before the first."""
    overrides: dict[str, ControlValue] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    """One line for each override of the command that was left out."""


def fenced(
    command: Command | None, *, job: str, attempt: int, current: Accepted, capabilities: Capabilities
) -> Accepted | None:
    """What `command` changes `current` to, or None where it changes nothing.

    A command of another job or attempt, or of a generation no newer than the current one, changes nothing. An override
    that does not exist, is out of bounds, or that the trainer cannot apply is refused alone; the rest stands.
    """
    if command is None or (command.job, command.attempt) != (job, attempt) or command.generation <= current.generation:
        return None
    overrides: dict[str, ControlValue] = {}
    refusals = []
    for name, value in command.overrides.items():
        refusal = _refusal(name, value, capabilities)
        if refusal is None:
            overrides[name] = value
        else:
            refusals.append(refusal)
    return Accepted(generation=command.generation, overrides=overrides, refusals=tuple(refusals))


def settled(base: Controls, accepted: Accepted) -> Accepted:
    """`accepted` without what contradicts the rest once it is laid over the run's own controls, `base`.

    Asked for here and not above, because the run's own controls may change under overrides that were fine before.
    """
    overrides, refusals = dict(accepted.overrides), accepted.refusals
    while (conflict := base.overlaid(overrides).conflict()) is not None:
        names, reason = conflict
        name = next((name for name in names if name in overrides), None)
        if name is None:  # the run contradicts itself, which its trainer refuses before step 0
            break
        refusals += (reason if reason.startswith(f"{name}:") else f"{name}: {overrides[name]!r} does not go: {reason}",)
        del overrides[name]
    if len(overrides) == len(accepted.overrides):
        return accepted
    return Accepted(generation=accepted.generation, overrides=overrides, refusals=refusals)


def _refusal(name: str, value: ControlValue, capabilities: Capabilities) -> str | None:
    try:
        check_value(name, value)
    except ControlError as error:
        return str(error)
    return capabilities.refusal(name, value)
