"""The two signs' distributions of the clipped log-ratio move apart, anywhere along them.

Let F-, F+ be the distribution functions of the clipped log-ratio of negative- and positive-advantage tokens, read at 9
fixed points between -0.64 and 0.64 nats, and D = F- - F+. The reference D0 is the mean of D while the asymmetry's
baseline warms up; D5 follows D with a time constant of five steps. The Kolmogorov-type distance

    K = max over the points of |D5 - D0|        WARN when K > 0.1 + e,  e = sqrt(ln(2 / alpha) / (2 n))

with alpha = 1e-6 and n the tokens of the rarer sign over five steps, divided by 10 because the tokens of a response are
not independent (Dvoretzky-Kiefer-Wolfowitz with Massart's constant bounds the noise of one F by e; the margin of 0.1 is
for what a healthy run's tails do within a regime). The difference of signs cancels what widens both, such as length
and prompt mix. The quantiles and means of `asymmetry` are more sensitive, and see their own point of the distribution
only; this one sees any.

It forgets its reference with the regime. Where a step is one of several passes, only the first of them is read.
Expected false alarms: by the bound alone about one in 10^6 steps. Silent where a scale common to both signs wanders by
15 %; a shift of all negative tokens by 0.2 nats where the spread is 0.04 is seen within 2 steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import ClassVar

from trimtab.agent.checks import require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.signals.step import Step
from trimtab.agent.state import Finding, State
from trimtab.agent.values import quick
from trimtab.hooks.sketch import Sign

_SIDE = (0.01, 0.04, 0.16, 0.64)
POINTS = (*(-x for x in reversed(_SIDE)), 0.0, *_SIDE)
"""Where the distribution functions are read, nats."""
MEMORY = 5
"""Steps that `D5` follows."""
LEAST = 10
"""Fewest steps that a reference is the mean of."""
DESIGN = 10.0
"""Tokens that count as one."""
ALPHA = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftSettings:
    """The margin."""

    margin: float = 0.1
    """Distance that is allowed, beyond what sampling explains."""

    def __post_init__(self) -> None:
        require(0 < self.margin < 1, "detectors.shift.margin", self.margin, "between 0 and 1")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """Remembers the reference and the latest difference at `POINTS`."""

    ROLE: ClassVar[Role] = Role.EARLY
    SIGNALS: ClassVar[tuple[str, ...]] = ("asymmetry", "asymmetry_mean")

    learnt: int = 0
    """Steps that the reference is the mean of."""
    reference: tuple[float, ...] = ()
    latest: tuple[float, ...] = ()
    """`D5`; empty until the reference is done."""

    def update(self, settings: ShiftSettings, reading: Reading) -> tuple[Shift, Finding]:
        """See the module."""
        found = _difference(reading.step) if reading.summary.pass_index == 0 else None
        if found is None:
            state = State.INCONCLUSIVE if self.learnt else reading.missing("asymmetry")
            return self, Finding(state=state, message="too few tokens of one sign, or a later pass")
        difference, n = found
        if not reading.is_anchored("asymmetry") or self.learnt < LEAST:
            return self._learning(difference), Finding(
                state=State.INCONCLUSIVE, message="the reference of this regime is being learnt"
            )
        if reading.broken(reading.value("asymmetry")):
            return self, Finding(state=State.INCONCLUSIVE, message="the asymmetry is not finite")
        before = self.latest or self.reference
        latest = tuple(old + (new - old) / MEMORY for old, new in zip(before, difference, strict=True))
        distances = [abs(a - b) for a, b in zip(latest, self.reference, strict=True)]
        distance = max(distances)
        noise = sqrt(log(2 / ALPHA) / (2 * n * MEMORY / DESIGN))
        limit = settings.margin + noise
        return Shift(learnt=self.learnt, reference=self.reference, latest=latest), Finding(
            state=State.WARN if distance > limit else State.OK,
            score=distance / limit,
            evidence={"distance": distance, "limit": limit, "sampling": noise, "tokens": float(n)},
            message=f"the signs' distributions are {distance:.3f} further apart than at first, at "
            f"{POINTS[distances.index(distance)]:+g} nats (limit {limit:.3f})",
        )

    def _learning(self, difference: tuple[float, ...]) -> Shift:
        if not self.learnt or self.latest:  # a new regime
            return Shift(learnt=1, reference=difference)
        n = self.learnt + 1
        mean = tuple(old + (new - old) / n for old, new in zip(self.reference, difference, strict=True))
        return Shift(learnt=n, reference=mean)


def _difference(step: Step) -> tuple[tuple[float, ...], int] | None:
    """F- - F+ at `POINTS`, and the tokens of the rarer sign; None where there are too few."""
    negative, positive = step.tokens("update", Sign.NEGATIVE), step.tokens("update", Sign.POSITIVE)
    if negative is None or positive is None:
        return None
    n = min(negative.n, positive.n)
    return tuple(negative.fraction_below(x) - positive.fraction_below(x) for x in POINTS), n
