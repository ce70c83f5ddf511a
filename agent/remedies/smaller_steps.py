"""Half the learning rate.

The mismatch itself shrinks with the step, also in FP16 (arXiv 2602.01826, which lowers the rate when responses grow
suddenly). On the cliff, where the cause is the sampler, half the rate does nothing (.11), so it comes after what
corrects the gradient. Costs speed."""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered
from trimtab.hooks.controls import ControlValue


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """The rate halved once more."""
    return offered({"lr_scale": situation.applied.lr_scale / 2}, situation)
