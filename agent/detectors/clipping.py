"""Rewarded tokens are silenced by precision, a few in every step.

Let x = c+ - c+(twin), c+ being the share of positive-advantage tokens that the upper clip bound silences, and c+(twin)
that share of the BF16 twin's ratio under nominal bounds. What staleness and large updates do is in both, so x is
precision's doing alone. It is small where FP8 harms slowly, and never goes away:

    s <- max(0, s + min(x, 0.02) - 0.006)          WARN when s > 0.05          (Page 1954, on the raw share)

and x counts as 0 unless both sd(d) and mean5(sd(d)) are above 0.12 nats, d being the mismatch: what FP8 or NVFP4
without outliers clips at a spread of 0.02 to 0.08 does no harm, and its late spikes last one step.

Measured: E4M3 rollouts of an ordinal task under twelve updates a rollout, which lose what BF16 gains, have x = 0.013 +-
0.006, and s passes 0.05 by step 10, with a mismatch spread of 0.15 to 0.19 nats that the conjunction does not see until
step 93. In five healthy NVFP4 runs of 110 steps s reached 0.010 at most (0.06 without the limits on the spread), and 0
in eleven BF16 runs. Expected false alarms: none seen in these 16.

Only steps with a twin count, so a twin every sixth step takes six times as long. Where the ratio is not against the
sampler x has nothing to show, and where the bounds are moved x is what the calibration makes it: there s begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippingSettings:
    """All are shares of the positive-advantage tokens."""

    allowance: float = 0.006
    """Excess that is forgiven every step."""
    cut: float = 0.02
    """Most that one step can add, before the allowance."""
    limit: float = 0.05
    """Sum at which it alarms."""
    std_limit: float = 0.12
    """On mean5(sd(d)), nats, unlike the rest."""

    def __post_init__(self) -> None:
        require(0 < self.allowance < 1, "detectors.clipping.allowance", self.allowance, "between 0 and 1")
        require(self.allowance < self.cut < 1, "detectors.clipping.cut", self.cut, "above the allowance, below 1")
        require(0 <= self.std_limit <= MOST, "detectors.clipping.std_limit", self.std_limit, f"0 to {MOST}")
        require(0 < self.limit <= 1000, "detectors.clipping.limit", self.limit, "in (0, 1000]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipping:
    """Remembers the sum."""

    ROLE: ClassVar[Role] = Role.SIGNATURE
    SIGNALS: ClassVar[tuple[str, ...]] = ("clip_excess_positive", "clip_fraction_positive")

    total: float = 0.0

    def update(self, settings: ClippingSettings, reading: Reading) -> tuple[Clipping, Finding]:
        """See the module."""
        excess = reading.value("clip_excess_positive")
        applied = reading.summary.applied
        if reading.summary.log is not None:
            return self, Finding(state=State.NOT_OBSERVED, message="a log has no ratios by advantage sign")
        if reading.summary.clip_bounds is not None or applied.ratio_reference != "sampler":
            message = "the ratio is not the sampler's, or its bounds are moved: precision silences nothing here"
            return Clipping(), Finding(state=State.NOT_OBSERVED, message=message)
        if excess is None:
            state = reading.missing("clip_excess_positive")
            if state is State.NOT_OBSERVED or not self.total > settings.limit:
                return self, Finding(state=state, message="no BF16 twin in this step")
            return self, self._judged(settings)
        spreads = reading.value("mismatch_std"), reading.mean("mismatch_std")
        if spreads[1] is None:
            return self, Finding(state=reading.missing("mismatch_std"), message="no window of the mismatch yet")
        if reading.broken(excess, *spreads):
            message = "the share of silenced tokens, or the spread of the mismatch, is not finite"
            return self, Finding(state=State.INCONCLUSIVE, message=message)
        noisy = all(spread is not None and spread > settings.std_limit for spread in spreads)
        counted = min(excess, settings.cut) if noisy else 0.0
        # The ceiling lets a sum come down again.
        total = min(max(self.total + counted - settings.allowance, 0.0), 2 * settings.limit)
        after = Clipping(total=total)
        return after, after._judged(settings)

    def _judged(self, settings: ClippingSettings) -> Finding:
        return Finding(
            state=State.WARN if self.total > settings.limit else State.OK,
            score=self.total / settings.limit,
            evidence={"clip_excess_sum": self.total, "clip_excess_limit": settings.limit},
            message=f"beyond the BF16 twin, {self.total:.3f} of the rewarded tokens silenced in sum over the steps "
            f"(limit {settings.limit:g})",
        )
