"""Clip bounds no looser than 0.2 below and 0.28 above (PPO's, and DAPO's upper one).

For updates that leave the batch they are made on because nothing holds them. On a TRL run with four passes and no
effective bound, which ends at chance, switched on by the alarm it ends at .957, .466 and .933 (3 seeds), and with half
the learning rate behind it at .977, .834 and .900; the run with a clip of 0.2 from the start at .943, .918 and .777
(docs/benchmarks.md). Costs nothing; what a run gains from looser bounds on purpose it loses."""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered
from trimtab.hooks.controls import ControlValue

LOW, HIGH = 0.2, 0.28


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """Both bounds, each where it is looser."""
    applied = situation.applied
    return offered({"clip_low": min(applied.clip_low, LOW), "clip_high": min(applied.clip_high, HIGH)}, situation)
