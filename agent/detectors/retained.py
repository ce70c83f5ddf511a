"""The batch shrinks behind the metrics: importance masks drop most of what was sampled.

WARN: mean5 of the retained fraction below 50 %. It is the signal of that name, or else, where whole sequences are
masked (`importance = "mis"`), the share of them that is not above the band. What is retained looks healthy by
construction, so no metric of retained tokens can show it. Under importance weights the evidence holds the raw maximum
and the share that the weights modify: a logged maximum equal to the cap says nothing.

Expected false alarms: none seen; masks of healthy runs drop a few percent, those reported of failing ones 50 to 71 %
(NVIDIA-NeMo/RL#4243).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from trimtab.agent.checks import require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.state import Finding, State
from trimtab.hooks.records import RATIO_CAPS, SequenceTotals, StepSummary
from trimtab.hooks.sketch import MIDDLES


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedSettings:
    """The limit."""

    limit: float = 0.5
    """On the mean retained fraction."""

    def __post_init__(self) -> None:
        require(0 < self.limit < 1, "detectors.retained.limit", self.limit, "between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """Remembers one window."""

    ROLE: ClassVar[Role] = Role.EARLY
    SIGNALS: ClassVar[tuple[str, ...]] = ()

    recent: tuple[float, ...] = ()
    """The latest retained fractions, oldest first."""

    def update(self, settings: RetainedSettings, reading: Reading) -> tuple[Retained, Finding]:
        """See the module."""
        fraction, weights = _retained(reading), raw_weights(reading.summary)
        if fraction is None:
            message = "no importance mask, or nothing to see of it"
            return self, Finding(state=State.NOT_OBSERVED, evidence=weights, message=message)
        after = Retained(recent=(*self.recent, fraction)[-reading.window :])
        mean = sum(after.recent) / len(after.recent)
        if len(after.recent) < reading.window or not math.isfinite(mean):
            return after, Finding(state=State.INCONCLUSIVE, evidence=weights, message="no window of finite fractions")
        return after, Finding(
            state=State.WARN if mean < settings.limit else State.OK,
            score=settings.limit / max(mean, 1e-9),
            evidence={"retained_fraction": mean, "limit": settings.limit} | weights,
            message=f"{mean:.1%} of the batch is retained (limit {settings.limit:.0%}){_lengths(reading.summary)}",
        )


def _retained(reading: Reading) -> float | None:
    """Share of tokens, or of sequences, that importance masks leave in the batch; None where that cannot be seen."""
    known, applied = reading.value("retained_fraction"), reading.summary.applied
    whole = reading.summary.sequences
    if known is not None or whole is None or not whole.observed:
        return known
    masks = applied.importance == "mis" and applied.importance_level == "sequence"
    return 1 - _above(whole, applied.importance_high) if masks else None


def raw_weights(summary: StepSummary) -> dict[str, float]:
    """Largest raw token ratio (within 2 %), and the share above the band, where importance weights are in effect."""
    raw, applied = summary.sketches.get("mismatch"), summary.applied
    if applied.importance == "none" or raw is None:
        return {}
    parts = [part for part in raw.signs() if part.n]
    if not parts:
        return {}
    high, tokens = math.log(applied.importance_high), sum(part.n for part in parts)
    above = sum(part.n * (1 - part.fraction_below(high)) for part in parts)
    largest = float(MIDDLES[max(part.bins[-1] for part in parts)])
    return {"raw_max": math.exp(largest), "modified_fraction": above / tokens}


def _above(whole: SequenceTotals, high: float) -> float:
    """Share of sequences above the band's upper bound; a smaller share where no level is that bound exactly."""
    place = next((place for place, cap in enumerate(RATIO_CAPS) if cap >= high), None)
    return 0.0 if place is None else whole.ratio_above[place] / whole.observed


def _lengths(summary: StepSummary) -> str:
    """Why whole sequences leave the band, in numbers."""
    whole, raw = summary.sequences, summary.sketches.get("mismatch")
    applied = summary.applied
    if whole is None or not whole.sequences or raw is None or applied.importance_level != "sequence":
        return ""
    if not raw.n or applied.importance == "none":
        return ""
    mean, length = raw.sum("log_ratio") / raw.n, raw.n / whole.sequences
    product = math.exp(min(mean * length, 700.0))
    return (
        f": {length:.0f} tokens of {mean:+.3f} nats each are a ratio of {product:.2f}, and the band ends at "
        f"{applied.importance_high:g}"
    )
