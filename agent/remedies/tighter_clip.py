"""Clip bounds no looser than 0.2 below and 0.28 above (PPO's, and DAPO's upper one).

For updates that leave the batch they are made on because nothing holds them. On a TRL run with four passes and no
effective bound, which ends at chance, switched on by the alarm it ends where the run with those bounds from the start
does (docs/attach/trl.md). Costs nothing; what a run gains from looser bounds on purpose it loses."""

from __future__ import annotations

from trimtab.agent.remedy import Refusal, Situation, offered
from trimtab.hooks.controls import ControlValue

LOW, HIGH = 0.2, 0.28


def propose(situation: Situation) -> dict[str, ControlValue] | Refusal:
    """Both bounds, each where it is looser."""
    applied = situation.applied
    return offered({"clip_low": min(applied.clip_low, LOW), "clip_high": min(applied.clip_high, HIGH)}, situation)
