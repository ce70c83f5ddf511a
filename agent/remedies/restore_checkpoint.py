"""Back to the best checkpoint that was taken while the run was healthy, with the remedies that are in force.

Past a point no control helps: on the cliff at step 40 two seeds of five are at chance for every remedy, BF16 rollouts
included, since no group has a response that is right. From a checkpoint before the fall the same remedies do what they
do in time. Costs the steps since then."""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered
from trimtab.hooks.controls import ControlValue


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """The restore, as a level."""
    if not situation.checkpoint:
        return Refusal(reason="restore: no checkpoint was taken while the run was healthy")
    return offered({"restore": situation.checkpoint}, situation)
