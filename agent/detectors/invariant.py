"""What a job declares of itself does not hold.

`expected_exact` declares that sampler and trainer compute the same log-probs bit for bit, as batch-invariant kernels in
one number format do. Let d = trainer log-prob - sampler log-prob. WARN: sqrt(mean(d^2)) of a step above `tolerance`. A
mean difference of 4.5e-4 nats is far below what matters to any other detector, and is a regression all the same.

Expected false alarms: none where the declaration is true. Source: THUDM/slime#830.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantSettings:
    """What is declared."""

    expected_exact: bool = False
    """Sampler and trainer log-probs are equal."""
    tolerance: float = 1e-6
    """Root mean square difference that still counts as equal, nats."""

    def __post_init__(self) -> None:
        name = "detectors.invariant.tolerance"
        require(0 <= self.tolerance <= MOST, name, self.tolerance, f"0 to {MOST}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """Remembers nothing."""

    ROLE: ClassVar[Role] = Role.EARLY
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    def update(self, settings: InvariantSettings, reading: Reading) -> tuple[Invariant, Finding]:
        """See the module."""
        if not settings.expected_exact:
            return self, Finding(state=State.NOT_OBSERVED, message="the job declares no invariant")
        mismatch, tokens = reading.summary.sketches.get("mismatch"), reading.step.n("mismatch")
        if mismatch is None or not tokens:
            state = State.NOT_OBSERVED if mismatch is None else State.INCONCLUSIVE
            return self, Finding(state=state, message="no token has log-probs of both sides")
        size = math.sqrt(max(mismatch.sum("log_ratio_sq"), 0.0) / tokens)
        broken = size > settings.tolerance
        return self, Finding(
            state=State.WARN if broken else State.OK,
            score=size / settings.tolerance if settings.tolerance else float(broken),
            evidence={"mismatch_rms": size, "tolerance": settings.tolerance},
            message=f"sampler and trainer log-probs differ by {size:.2e} nats, and are declared to be equal"
            if broken
            else "sampler and trainer log-probs are equal, as declared",
        )
