"""The entropy leaves where it was, and the reward has nothing to do with it: an early sign, in both directions.

Let M be median5(entropy), which one garbage batch does not move, R and s location and scale of the entropy's delayed
average (`trimtab.agent.lagged`, 40 steps), and R0 what R was at first, at least 0.05 nats. WARN when

    M > R + max(0.15 R0, 4 s)        the policy dissolves
    M < R - max(0.12 R0, 4 s)        it collapses

and mean5(reward) is not above its own delayed average by 0.7 of its sd: entropy that buys reward is how training
works. The share is of R0, not of R, because a healthy run falls by ever less of it, and then only wanders in relative
terms (0.014 to 0.004 nats at a reward of 0.99).

Expected false alarms, for an entropy that wanders by 3 % (AR(1), coefficient 0.9): 1 in 60,000 steps where nothing
happens, 1 to 3 in 10,000 of a fall to 30 % over 800 steps that takes the reward from 0.5 to 0.9 (with `fall = 0.13`
a fifth of that, 2 steps later). On the same a rise to three times in 200 steps, at a constant reward, is seen after 19
steps (24 at the latest, of 48 runs), a fall to a tenth after 30 (38 in nine of ten, 42 at the latest). What comes
slower than that, or does harm at once, is for the detectors of harm. It begins to judge 70 steps into an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.lagged import Lagged
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State
from trimtab.agent.values import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyTrendSettings:
    """How far, against when."""

    delay: int = 40
    """Steps before which the reference ends."""
    rise: float = 0.15
    """Rise that alarms, as a share of the entropy at first."""
    fall: float = 0.12
    """Fall that alarms, as a share of the entropy at first."""
    noise: float = 4.0
    """Scales of the reference below which neither is one."""
    gain: float = 0.7
    """Gain of the mean reward that pays for either, in sd of one step's reward."""
    floor: float = 0.05
    """Least that counts as the entropy at first, nats."""

    def __post_init__(self) -> None:
        require(5 <= self.delay <= 1000, "detectors.entropy_trend.delay", self.delay, "5 to 1000 steps")
        require(0 < self.rise <= MOST, "detectors.entropy_trend.rise", self.rise, f"in (0, {MOST}]")
        require(0 < self.fall < 1, "detectors.entropy_trend.fall", self.fall, "between 0 and 1")
        require(0 <= self.noise <= MOST, "detectors.entropy_trend.noise", self.noise, f"in [0, {MOST}]")
        require(0 <= self.gain <= MOST, "detectors.entropy_trend.gain", self.gain, f"in [0, {MOST}]")
        require(0 < self.floor <= MOST, "detectors.entropy_trend.floor", self.floor, f"in (0, {MOST}]")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyTrend:
    """Remembers what entropy and reward were."""

    ROLE: ClassVar[Role] = Role.EARLY
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    entropy: Lagged = field(default_factory=Lagged)
    reward: Lagged = field(default_factory=Lagged)

    def update(self, settings: EntropyTrendSettings, reading: Reading) -> tuple[EntropyTrend, Finding]:
        """See the module."""
        finding = self._judged(settings, reading)
        frozen, delay = finding.state.alarming, settings.delay
        after = EntropyTrend(
            entropy=self.entropy.updated(reading.value("entropy"), delay=delay, frozen=frozen),
            reward=self.reward.updated(reading.value("reward_mean"), delay=delay, frozen=frozen),
        )
        return after, finding

    def _judged(self, settings: EntropyTrendSettings, reading: Reading) -> Finding:
        middle, then, first = reading.median("entropy"), self.entropy.then, self.entropy.first
        if middle is None or then is None or first is None or not isfinite(middle):
            state = State.INCONCLUSIVE if self.entropy.waiting else reading.missing("entropy")
            return Finding(state=state, message="no entropy, or not yet for long enough to say what it was before")
        if reading.broken(reading.mean("reward_mean")):
            return Finding(state=State.INCONCLUSIVE, message="a reward that could pay for the entropy is not finite")
        unit = max(first.location, settings.floor)
        upper = max(settings.rise * unit, settings.noise * then.scale)
        lower = max(settings.fall * unit, settings.noise * then.scale)
        moved = middle - then.location
        score = moved / upper if moved > 0 else -moved / lower
        gain, needed = self._gain(settings, reading)
        bought = gain is not None and gain > needed
        told = "" if gain is None else f", reward {gain:+.3f} in that time"
        return Finding(
            state=State.WARN if score > 1 and not bought else State.OK,
            score=score,
            evidence={
                "entropy": middle,
                "entropy_before": then.location,
                "rise_limit": upper,
                "fall_limit": -lower,
                **({} if gain is None else {"reward_gain": gain, "reward_gain_needed": needed}),
            },
            message=f"entropy {middle:.4f}, {moved:+.4f} from what it was {settings.delay} steps ago and more "
            f"(limits {-lower:+.4f} and {upper:+.4f}){told}",
        )

    def _gain(self, settings: EntropyTrendSettings, reading: Reading) -> tuple[float | None, float]:
        """Gain of the mean reward over its delayed average, and what makes it one."""
        mean, then = reading.mean("reward_mean"), self.reward.then
        if mean is None or then is None or not isfinite(mean):
            return None, 0.0
        return mean - then.location, settings.gain * then.scale
