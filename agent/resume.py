"""A resume: the steps in which what alarms may pass, and what the run was like before.

Right after a resume caches are cold, the sampler may still hold older weights, and the first batches are odd: log-probs
20 times as far apart and a fifth of the reward were seen for four steps, and were gone by the fifth. In that grace an
alarm is told as a transient, and no action is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.agent.baselines import Level
from trimtab.agent.tracks import Track

REMEMBERED = {"mismatch_std": "highest", "reward_mean": "lowest"}
"""Signals that are compared with the attempts before, and the level of their baseline that stands for the worst."""


def in_grace(grace: int, steps: int, tick: int) -> bool:
    """Whether a step lies within `grace` steps of a resume; it is the `steps`-th of its attempt, from 1, and the
    `tick`-th of all. The first attempt is no resume."""
    return tick > steps and steps <= grace


def worst_of(tracks: Mapping[str, Track], known: Mapping[str, Level]) -> dict[str, Level]:
    """What the remembered signals were like at their worst in an attempt that ends, or else in those before it."""
    found = {name: getattr(tracks[name].baseline, which) for name, which in REMEMBERED.items() if name in tracks}
    return {**known, **{name: level for name, level in found.items() if level is not None}}
