"""The reward falls.

1. Collapse, CRITICAL: mean5(reward) below 60 % of its highest value so far, at least `margin` below it, and at least
   4 sd of one step's reward. That sd is told from successive steps, 0.886 mean |x[t] - x[t - 1]| over some 100, so that
   a fall does not widen it. The highest of many means is 1.5 sd above what they are of (8 prompts of 8 binary rewards:
   sd 0.1), which makes it a fall by 5 sd of a mean. Highest values that are not positive count by size: the fall must
   exceed 40 % of |peak|. On collapsing runs this is the onset itself, so a detector that leads must come before it.
2. Decline, WARN: the downward CUSUM (k = 1, h = 20) of the standardised distance to the highest average so far
   exceeds h, and mean5(reward) is below that average by 15 % of it and by 1.5 sd. It sees a slow fall that the first
   rule meets late: some 30 steps into a fall from 0.5 to 0.01 over 100 steps (64 binary rewards a step); and one that
   the first rule never meets: 10 to 11 steps into a fall within 5 from 0.9, which was reached from 0.2, to 0.58. The
   second leg is there because near a reward of 1 the noise is so small that harmless dips are many sd deep, and the
   third because rewards of a few hard and easy prompts are noisier than they look in 30 steps.

Expected false alarms, of 8 prompts of 8 binary rewards a step: none in 50,000 steps at a mean of 0.5, one in 50,000 at
0.2.

When no group of a step has any variance of reward, no token carries a signal: INCONCLUSIVE, however good the mean
looks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.cusum import Cusum, CusumSettings
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State
from trimtab.agent.values import quick

STEP_TO_SD = 0.886
"""sd / E|difference of two| of a normal distribution, sqrt(pi) / 2."""
MEMORY = 100
"""Steps that the noise is told from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSettings:
    """Limits of both rules."""

    collapse: float = 0.6
    """Share of the peak below which the reward has collapsed."""
    margin: float = 0.05
    """Smallest fall from the peak that counts, in units of reward."""
    cusum: CusumSettings = field(default_factory=CusumSettings)
    decline: float = 0.85
    """Share of the highest average below which a decline counts."""
    collapse_noise: float = 4.0
    """Smallest fall that is a collapse, in sd of one step's reward."""
    decline_noise: float = 1.5
    """Smallest fall that is a decline, in sd of one step's reward."""

    def __post_init__(self) -> None:
        self.cusum.check("detectors.reward.cusum")
        require(0 < self.collapse < 1, "detectors.reward.collapse", self.collapse, "between 0 and 1")
        require(0 < self.decline < 1, "detectors.reward.decline", self.decline, "between 0 and 1")
        for name in ("collapse_noise", "decline_noise"):
            require(0 <= getattr(self, name) <= MOST, f"detectors.reward.{name}", getattr(self, name), f"0 to {MOST}")
        require(0 < self.margin <= MOST, "detectors.reward.margin", self.margin, f"in (0, {MOST}]")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """Remembers the sums of distances to the highest average."""

    ROLE: ClassVar[Role] = Role.HARM
    SIGNALS: ClassVar[tuple[str, ...]] = ("reward_mean",)

    cusum: Cusum = field(default_factory=Cusum)
    last: float | None = None
    """The latest finite reward."""
    jitter: float = 0.0
    """Mean size of its steps."""
    steps: int = 0
    """Steps that are in that mean, up to `MEMORY`."""

    @property
    def noise(self) -> float:
        """Standard deviation of one step's reward about what it is of."""
        return STEP_TO_SD * self.jitter

    def update(self, settings: RewardSettings, reading: Reading) -> tuple[Reward, Finding]:
        """See the module."""
        reward, distance = reading.value("reward_mean"), reading.distance("reward_mean", "highest")
        cusum = self.cusum if distance is None else self.cusum.updated(distance, settings.cusum)
        after = self if reward is None or not isfinite(reward) else self._seen(reward, cusum)
        return after, _judged(after, settings, reading)

    def collapse(self, settings: RewardSettings, peak: float) -> float:
        """How far below the peak of the mean reward it has collapsed."""
        return max((1 - settings.collapse) * abs(peak), settings.margin, settings.collapse_noise * self.noise)

    def decline(self, settings: RewardSettings, highest: float) -> float:
        """How far below its highest average the mean reward has declined, where that lasts."""
        return max((1 - settings.decline) * abs(highest), settings.decline_noise * self.noise)

    def _seen(self, reward: float, cusum: Cusum) -> Reward:
        """With one more step in the noise."""
        if self.last is None:
            return Reward(cusum=cusum, last=reward)
        steps = min(self.steps + 1, MEMORY)
        jitter = self.jitter + (abs(reward - self.last) - self.jitter) / steps
        return Reward(cusum=cusum, last=reward, jitter=jitter, steps=steps)


def _judged(memory: Reward, settings: RewardSettings, reading: Reading) -> Finding:
    down = memory.cusum.down
    mean, peak = reading.mean("reward_mean"), reading.peak("reward_mean")
    if mean is None or peak is None or not isfinite(mean):
        state = reading.missing("reward_mean") if mean is None else State.INCONCLUSIVE
        return Finding(state=state, message="no window of finite rewards")
    evidence = {"reward_mean": mean, "peak": peak, "decline": down, "decline_limit": settings.cusum.h}
    best = reading.level("reward_mean", "highest")
    limit = memory.collapse(settings, peak)
    if peak - mean > limit:
        return Finding(
            state=State.CRITICAL,
            score=(peak - mean) / limit,
            evidence=evidence,
            message=f"reward {mean:.3f} has fallen from its peak {peak:.3f} by more than {limit:.3f}",
        )
    if best is not None and down > settings.cusum.h and best.location - mean > memory.decline(settings, best.location):
        return Finding(
            state=State.WARN,
            score=down / settings.cusum.h,
            evidence=evidence | {"highest_average": best.location},
            message=f"reward {mean:.3f} declines: {down:.1f} sd summed below its highest average {best.location:.3f} "
            f"(limit {settings.cusum.h:g})",
        )
    zero_variance = reading.value("zero_variance_fraction")
    if reading.broken(zero_variance):
        return Finding(
            state=State.INCONCLUSIVE,
            evidence=evidence,
            message="the share of groups without variance of reward is not finite",
        )
    if zero_variance == 1.0:
        return Finding(
            state=State.INCONCLUSIVE,
            evidence=evidence,
            message="every group has one reward for all its responses: no signal to learn from, whatever the mean",
        )
    return Finding(
        state=State.OK,
        score=max((peak - mean) / limit, down / settings.cusum.h),
        evidence=evidence,
        message=f"reward {mean:.3f}, peak {peak:.3f}",
    )
