"""Updates that leave the batch they are made on: mean5(overreach) > 0.5 %, or mean5(sd of the log-ratio) > 0.5 nats.

- overreach is the share of the tokens that are already further than 1.5 nats where their advantage pushes them, and
  still carry gradient. A usual clip bound (0.2, or 0.28 above) makes it 0 in every step, so this is about loose bounds:
  nothing holds the policy near the one that sampled.
- The spread of the ratio over the passes says the same of steps that are too large for so many passes, whatever is
  clipped: a token that is clipped goes on moving with the others. It is read where the ratio is against recomputed
  log-probs and so holds nothing but the updates; the sampler's noise would be in it otherwise.

Windows span whole cycles of passes. Measured on a TRL run (docs/attach/trl.md) with four passes and no effective bound,
which climbs for seven batches and then falls to chance: first alarm in step 26 to 38, thirty steps and more before the
reward turns. Of the recorded runs whose ratio is recomputed the healthy ones spread by 0.25 nats at most, two versions
stale or eight. Expected false alarms: none seen where bounds are usual.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State


@dataclass(frozen=True, slots=True, kw_only=True)
class OverreachSettings:
    """The limits."""

    limit: float = 0.005
    """On the mean share of tokens."""
    spread_limit: float = 0.5
    """On the mean spread of the log-ratio, nats."""

    def __post_init__(self) -> None:
        require(0 < self.limit < 1, "detectors.overreach.limit", self.limit, "between 0 and 1")
        require(0 < self.spread_limit <= MOST, "detectors.overreach.spread_limit", self.spread_limit, f"in (0, {MOST}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overreach:
    """Remembers nothing: the windows are the signals' own."""

    ROLE: ClassVar[Role] = Role.SIGNATURE
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    def update(self, settings: OverreachSettings, reading: Reading) -> tuple[Overreach, Finding]:
        """See the module."""
        share, spread = reading.mean("overreach"), reading.mean("update_std")
        if share is None or spread is None or reading.broken(share, spread):
            state = State.INCONCLUSIVE if reading.broken(share, spread) else reading.missing("overreach", "update_std")
            return self, Finding(state=state, message="no window of finite ratios")
        far = spread if reading.summary.applied.ratio_reference == "recomputed" else 0.0
        scores = share / settings.limit, far / settings.spread_limit
        message = (
            f"{share:.1%} of the tokens are pushed further than 1.5 nats, and no clip bound holds them (limit "
            f"{settings.limit:.1%})"
            if scores[0] >= scores[1]
            else f"the updates on one batch spread the ratio by {spread:.2f} nats (limit {settings.spread_limit:g})"
        )
        return self, Finding(
            state=State.WARN if max(scores) > 1 else State.OK,
            score=max(scores) if isfinite(max(scores)) else 0.0,
            evidence={"overreach": share, "update_std": spread},
            message=message,
        )
