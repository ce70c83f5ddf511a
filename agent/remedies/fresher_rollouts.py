"""Rollouts at most half as stale.

Staleness is a cause of its own: with a recomputed ratio, twice the learning rate and four versions of lag, BF16 fails
as often as NVFP4. Costs throughput: the sampler waits for weights more often."""

from __future__ import annotations

from math import inf

from trimtab.agent.remedy import Refusal, Situation, offered
from trimtab.hooks.controls import ControlValue


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """A bound on the age of the weights that are sampled with."""
    if situation.staleness is None or not 1 <= situation.staleness < inf:
        return Refusal(reason="max_staleness: the rollouts are fresh, or their age is not reported")
    return offered({"max_staleness": float(situation.staleness // 2)}, situation)
