"""The trainer's forward pass in a higher precision: FP8 scaled by token, else BF16. The last thing to try against
gradients that spike, since it gives up what the low precision was chosen for."""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered_first
from trimtab.hooks.controls import ControlValue

LADDER: tuple[ControlValue, ...] = ("fp8-row", "bf16")


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """The next format up that the trainer can be switched to."""
    now = situation.applied.train_format
    if now == LADDER[-1]:
        return Refusal(reason=f"train_format: {now!r} is the highest already")
    above = LADDER[-1:] if now.startswith("fp8-row") else LADDER
    return offered_first("train_format", above, situation, none=f"train_format: no format above {now!r}")
