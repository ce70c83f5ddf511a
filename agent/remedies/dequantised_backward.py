"""A backward pass that multiplies by what the forward pass saw.

Operands that are quantised anew for the backward pass belong to another function than the forward pass computed: in
NVFP4 its codes are cut along the other axis, and the gradient is no gradient of the loss (arXiv 2509.25149). Costs
memory: the dequantised operands."""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered
from trimtab.hooks.controls import ControlValue


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """Dequantised operands."""
    return offered({"backward": "dequantized"}, situation)
