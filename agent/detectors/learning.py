"""Nothing is learnt from: no advantage differs from 0.

WARN from the `steps`-th step in a row in which every group has one reward for all its responses, or every live token
the advantage 0: advantages compare inside a group, so rewards that differ between groups only teach nothing. What still
moves the weights then is the KL penalty, and the message says so. One such step happens, and is INCONCLUSIVE. So is a
run that has learnt what there is: its mean reward is near its best, which is above where the run began, or in the top
2 % below 1.

Expected false alarms: none seen. Ten steps in a row of 24 groups of 8 binary rewards at 90 % have no variance with a
probability below 1e-80. Sources: huggingface/trl#3857 and #5588.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State
from trimtab.agent.values import quick

PROGRESS = 0.05
"""Gain of the mean reward, relative, and at least absolute below 1, that shows that a run has learnt."""
CEILING = (0.98, 1.0)
"""Mean rewards at which a run on rewards of 0 to 1 has learnt what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """Patience with steps that teach nothing."""

    steps: int = 10
    """In a row, at which it alarms."""

    def __post_init__(self) -> None:
        require(1 <= self.steps <= MOST, "detectors.learning.steps", self.steps, f"1 to {MOST}")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """Counts steps that teach nothing, and remembers the lowest mean reward."""

    ROLE: ClassVar[Role] = Role.EARLY
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    idle: int = 0
    """Steps in a row."""
    lowest: float | None = None
    """Lowest window mean of the reward in this attempt."""

    def update(self, settings: LearningSettings, reading: Reading) -> tuple[Learning, Finding]:
        """See the module."""
        summary, share = reading.summary, reading.value("zero_variance_fraction")
        reward = reading.mean("reward_mean")
        lowest = self.lowest
        if reward is not None and isfinite(reward):
            lowest = reward if lowest is None else min(lowest, reward)
        if summary.log is not None and share is None:
            state = Finding(state=State.NOT_OBSERVED, message="the log does not tell groups without a difference")
            return Learning(lowest=lowest), state
        if (summary.log is None and not summary.tokens) or reading.broken(share, reward):
            state = Finding(state=State.INCONCLUSIVE, message="no tokens, or rewards that are not finite")
            return Learning(idle=self.idle, lowest=lowest), state
        if share != 1.0 and (summary.log is not None or summary.negative.tokens + summary.positive.tokens):
            return Learning(lowest=lowest), Finding(state=State.OK, message="rewards differ inside groups")
        after = Learning(idle=self.idle + 1, lowest=lowest)
        told = (
            f"no signal to learn from in {after.idle} step{'s' if after.idle > 1 else ''}: rewards differ in no group"
        )
        norm = summary.scalars.get("grad_norm", 0.0)
        if isfinite(norm) and norm > 0:
            told += "; updates are driven only by the KL penalty"
        evidence = {"idle_steps": float(after.idle), "limit": float(settings.steps), "grad_norm": norm}
        if _has_learnt(reward, lowest, reading.peak("reward_mean")):
            told += "; the reward is at its best, so there is nothing left to learn"
            return after, Finding(state=State.INCONCLUSIVE, evidence=evidence, message=told)
        return after, Finding(
            state=State.WARN if after.idle >= settings.steps else State.INCONCLUSIVE,
            score=after.idle / settings.steps,
            evidence=evidence,
            message=told,
        )


def _has_learnt(reward: float | None, lowest: float | None, peak: float | None) -> bool:
    if reward is None or lowest is None or peak is None:
        return False
    margin = PROGRESS * max(1.0, abs(peak))
    return CEILING[0] <= reward <= CEILING[1] or (reward >= peak - margin and peak - lowest > 2 * margin)
