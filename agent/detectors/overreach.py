"""Updates that have left the batch they are made on: mean5(overreach) > 0.5 %.

overreach is the share of the tokens that are already further than 1.5 nats where their advantage pushes them, and still
carry gradient. A usual clip bound (0.2, or 0.28 above) makes it 0 in every step, so this is about loose bounds alone,
together with too many passes or too large steps: nothing holds the policy near the one that sampled.

Measured on a TRL run (docs/attach/trl.md) with four passes and no effective bound, which climbs for seven batches and
then falls to chance: first alarm in step 28 to 38 of 640, thirty steps and more before the reward turns. With bounds of
0.2 and nothing else changed it is 0 throughout and the reward reaches 0.9. Expected false alarms: none where bounds are
usual.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from trimtab.agent.checks import require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State


@dataclass(frozen=True, slots=True, kw_only=True)
class OverreachSettings:
    """The limit."""

    limit: float = 0.005
    """On the mean share of tokens."""

    def __post_init__(self) -> None:
        require(0 < self.limit < 1, "detectors.overreach.limit", self.limit, "between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overreach:
    """Remembers nothing: the window is the signal's own."""

    ROLE: ClassVar[Role] = Role.SIGNATURE
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    def update(self, settings: OverreachSettings, reading: Reading) -> tuple[Overreach, Finding]:
        """See the module."""
        mean = reading.mean("overreach")
        if mean is None or not isfinite(mean):
            state = State.INCONCLUSIVE if mean is not None else reading.missing("overreach")
            return self, Finding(state=state, message="no window of clipped ratios")
        return self, Finding(
            state=State.WARN if mean > settings.limit else State.OK,
            score=mean / settings.limit,
            evidence={"overreach": mean, "limit": settings.limit},
            message=f"{mean:.1%} of the tokens are pushed further than 1.5 nats, and no clip bound holds them "
            f"(limit {settings.limit:.1%})",
        )
