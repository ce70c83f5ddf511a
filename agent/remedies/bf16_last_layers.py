"""The last 15 % of the layers in BF16, as NVFP4 pre-training keeps them (arXiv 2509.25149).

For gradients that spike: the last layers' errors reach the loss undamped. On the cliff, where rollouts are what is
noisy, it does nothing (.12). Costs speed in these layers."""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered
from trimtab.hooks.controls import ControlValue

SHARE = 0.15


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """At least that share."""
    return offered({"bf16_last": max(SHARE, situation.applied.bf16_last)}, situation)
