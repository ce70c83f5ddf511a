"""What every remedy is: a pure function from what is in effect and possible to overrides, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimtab.hooks.controls import Capabilities, Controls, ControlValue

HIGH_PRECISION = ("bf16", "fp32")
"""Formats above which there is nothing to go to."""


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


def offered_on_recomputed_ratio(
    overrides: dict[str, ControlValue], situation: Situation
) -> dict[str, ControlValue] | Refusal:
    """`overrides` with the ratio against recomputed log-probs; alone where there is no ratio."""
    ratio: dict[str, ControlValue] = {}
    if situation.applied.objective != "reinforce":
        ratio = {"ratio_reference": "recomputed"}
    return offered({**ratio, **overrides}, situation)


def offered_precision(control: str, situation: Situation) -> dict[str, ControlValue] | Refusal:
    """The next format up that `control` can be set to: FP8 scaled by token, then BF16."""
    now = getattr(situation.applied, control)
    if now in HIGH_PRECISION:
        return Refusal(reason=f"{control}: {now!r} is the highest already")
    if not now.startswith("fp8-row"):
        higher = offered({control: "fp8-row"}, situation)
        if isinstance(higher, dict):
            return higher
    return offered({control: "bf16"}, situation)
