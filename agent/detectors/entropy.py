"""Entropy leaves, with harm: up (the policy dissolves) or down (it collapses).

A fall is what training does: in healthy runs the entropy went from 0.37 to 0.014 nats while the reward went from 0.35
to 0.99, and "mean + 3 sd" limits fired on 4 of 13 of them. So both directions ask what the reward does.

1. Up, WARN: the upward CUSUM (k = 1, h = 20) of the standardised distance to the lowest average so far exceeds h, so
   that a rise after a healthy fall counts from where the fall ended, median5(entropy) is above 1.25 times that average,
   and mean5(reward) is below 85 % of its peak. An entropy that wanders by 3 % fools the sum, and not the factor. A
   rise without harm is on record in the message, and no alarm. Without a reward it is INCONCLUSIVE.
2. Down, WARN: mean5(entropy) below 25 % of what it was when the reward last made progress, if that was at least 0.05
   nats. Progress is a mean5(reward) higher than the best so far by `progress` (relative, and at least absolute on
   rewards below 1): what is bought with entropy is not a collapse. Once mean5(reward) is below 60 % of the best, the
   best is what it is now, so that the way back is progress too. A policy below 0.05 nats is deterministic already: a
   healthy BF16 run at reward 0.99 went on from 0.014 to 0.004 nats.

On small collapsing runs the rise came 2 to 64 steps after the reward fell, so this detector confirms more than it
leads. Expected false alarms: none seen in 20,000 drawn healthy steps with an entropy that wanders, nor in 15 real
healthy runs of 110 to 180 steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.cusum import Cusum, CusumSettings
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading, share_of
from trimtab.agent.state import Finding, State
from trimtab.agent.values import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropySettings:
    """Limits of both rules."""

    cusum: CusumSettings = field(default_factory=CusumSettings)
    rise: float = 1.25
    """Factor on the lowest average above which a rise counts."""
    reward_limit: float = 0.85
    """Share of the peak reward below which a rise does harm."""
    drop_limit: float = 0.25
    """Share of the entropy at the last progress below which it has collapsed."""
    progress: float = 0.01
    """Gain of the mean reward that counts as progress."""
    setback: float = 0.6
    """Share of the best mean reward below which progress counts anew."""
    floor: float = 0.05
    """Entropy from which a fall can be a collapse, nats."""

    def __post_init__(self) -> None:
        self.cusum.check("detectors.entropy.cusum")
        require(1 < self.rise <= MOST, "detectors.entropy.rise", self.rise, f"in (1, {MOST}]")
        require(0 < self.reward_limit < 1, "detectors.entropy.reward_limit", self.reward_limit, "between 0 and 1")
        require(0 < self.drop_limit < 1, "detectors.entropy.drop_limit", self.drop_limit, "between 0 and 1")
        require(0 < self.progress <= MOST, "detectors.entropy.progress", self.progress, f"in (0, {MOST}]")
        require(0 < self.setback < 1, "detectors.entropy.setback", self.setback, "between 0 and 1")
        require(0 < self.floor <= MOST, "detectors.entropy.floor", self.floor, f"in (0, {MOST}]")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Entropy:
    """Remembers the sums of distances to the lowest average, and the last progress."""

    ROLE: ClassVar[Role] = Role.HARM
    SIGNALS: ClassVar[tuple[str, ...]] = ("entropy",)

    cusum: Cusum = field(default_factory=Cusum)
    reward: float | None = None
    """Mean reward at the last progress."""
    entropy: float | None = None
    """Mean entropy at the last progress, nats."""

    def update(self, settings: EntropySettings, reading: Reading) -> tuple[Entropy, Finding]:
        """See the module."""
        distance = reading.distance("entropy", "lowest")
        cusum = self.cusum if distance is None else self.cusum.updated(distance, settings.cusum)
        reward, entropy = self._progress(settings, reading)
        after = Entropy(cusum=cusum, reward=reward, entropy=entropy)
        return after, after._judged(settings, reading)

    def _progress(self, settings: EntropySettings, reading: Reading) -> tuple[float | None, float | None]:
        """Mean reward and entropy at the last progress, or setback, this step's included."""
        mean, reward = reading.mean("entropy"), reading.mean("reward_mean")
        if mean is None or reward is None or not (isfinite(mean) and isfinite(reward)):
            return self.reward, self.entropy
        if self.reward is None or self.entropy is None:
            return reward, mean
        step = settings.progress * max(1.0, abs(self.reward))
        if reward > self.reward + step:
            return reward, mean
        if self.reward - reward > max((1 - settings.setback) * abs(self.reward), step):
            return reward, max(mean, self.entropy)
        return self.reward, self.entropy

    def _judged(self, settings: EntropySettings, reading: Reading) -> Finding:
        mean, reward, peak = reading.mean("entropy"), reading.mean("reward_mean"), reading.peak("reward_mean")
        if mean is None or not isfinite(mean):
            state = reading.missing("entropy") if mean is None else State.INCONCLUSIVE
            return Finding(state=state, message="no window of finite entropies")
        up, h = self.cusum.up, settings.cusum.h
        evidence = {"entropy": mean, "rise": up, "rise_limit": h}
        lowest = reading.level("entropy", "lowest")
        middle = reading.median("entropy")
        above = lowest is not None and middle is not None and middle > settings.rise * lowest.location
        rising = up > h and above
        if reward is None or peak is None or not isfinite(reward) or self.entropy is None:
            return Finding(
                state=State.INCONCLUSIVE,
                score=up / h,
                evidence=evidence,
                message=f"entropy {mean:.3f}{' and rising' if rising else ''}; no reward to judge its harm by",
            )
        floor = share_of(peak, settings.reward_limit)
        drop = mean / self.entropy if self.entropy >= settings.floor else 1.0
        evidence |= {"reward_mean": reward, "reward_floor": floor, "entropy_at_progress": self.entropy}
        if rising and reward < floor:
            return Finding(
                state=State.WARN,
                score=up / h,
                evidence=evidence,
                message=f"entropy {mean:.3f} rises ({up:.1f} sd summed above its lowest average), "
                f"reward is down to {reward:.3f}",
            )
        if drop < settings.drop_limit:
            return Finding(
                state=State.WARN,
                score=settings.drop_limit / max(drop, 1e-9),
                evidence=evidence,
                message=f"entropy {mean:.4f} is {drop:.0%} of {self.entropy:.3f}, when the reward last improved",
            )
        note = ": rising, without harm to the reward" if rising else ""
        return Finding(
            state=State.OK,
            score=settings.drop_limit / max(drop, 1e-9),
            evidence=evidence,
            message=f"entropy {mean:.4f}{note}",
        )
