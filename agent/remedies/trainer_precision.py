"""The trainer's forward pass in a higher precision: FP8 scaled by token, else BF16. The last thing to try against
gradients that spike, since it gives up what the low precision was chosen for."""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered_precision
from trimtab.hooks.controls import ControlValue


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """The next format up that the trainer can be switched to."""
    return offered_precision("train_format", situation)
