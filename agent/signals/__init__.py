"""What is read from one step: one visible dict of pure functions of a summary to a number.

None means not observed: the run does not report it, or too few tokens of one advantage sign are there to judge. NaN
and the infinities mean observed, and not finite. Log-ratios and entropies are in nats; fractions are of the tokens
named. A quantile is named by the digits after its point: q05 is 5 %, q999 is 99.9 %.

Signs are read apart because the harm has a sign: a negative-advantage token whose ratio falls below 1 - clip_low
escapes its penalty, while staleness and number formats displace both signs together. The *difference* of signs
cancels what is common (length, prompt mix, temperature); the difference to the BF16 twin also cancels what staleness
alone does.
"""

from __future__ import annotations

import math

from trimtab.agent.signals.behaviour import (
    DEPENDENCY_ORDER,
    NEVER_INFINITE,
    advantage_fraction,
    entropy,
    entropy_negative,
    entropy_positive,
    nonfinite,
    scalars,
    staleness,
    tokens,
)
from trimtab.agent.signals.ratios import (
    asymmetry,
    asymmetry_gap,
    asymmetry_mean,
    chi2_sequence,
    chi2_token,
    clip_excess_positive,
    clip_fraction_negative,
    clip_fraction_positive,
    escape_excess,
    ess,
    ess_sequence,
    lost_penalty,
    mismatch_first_position,
    mismatch_kl,
    mismatch_largest_sequence,
    mismatch_mean,
    mismatch_std,
    mismatch_worst_length,
    overreach,
    quantiles,
    retained_fraction,
    skew,
    twin_asymmetry,
    twin_clip_fraction_negative,
    update_std,
)
from trimtab.agent.signals.step import MIN_TOKENS, Signal, Step, quantile
from trimtab.hooks.records import StepSummary

__all__ = [
    "DEPENDENCY_ORDER",
    "DRAWN",
    "LARGEST",
    "MIN_TOKENS",
    "NEVER_INFINITE",
    "RATIO_SIGNALS",
    "ROLLOUTS",
    "SIGNALS",
    "Signal",
    "entropy",
    "mismatch_std",
    "quantile",
    "read_all",
    "signals_of",
    "twin_asymmetry",
    "twin_clip_fraction_negative",
]

LARGEST = 1e100
"""Nothing that a run measures is larger, and below it no mean, difference or ratio to a scale loses its meaning to
overflow: what lies beyond is as good as infinite, and is judged so."""

RATIO_SIGNALS: dict[str, Signal] = {
    "update_std": update_std,
    "clip_fraction_positive": clip_fraction_positive,
    "clip_fraction_negative": clip_fraction_negative,
    "lost_penalty": lost_penalty,
    "skew": skew,
    "asymmetry": asymmetry,
    "asymmetry_mean": asymmetry_mean,
    **quantiles("update", "the clipped log-ratio"),
}
"""Signals of the clipped log-ratio, whose baselines hold for one regime; see `trimtab.agent.regime`."""

SIGNALS: dict[str, Signal] = {
    **RATIO_SIGNALS,
    "mismatch_std": mismatch_std,
    "mismatch_mean": mismatch_mean,
    "mismatch_kl": mismatch_kl,
    "ess": ess,
    "ess_sequence": ess_sequence,
    "chi2_token": chi2_token,
    "chi2_sequence": chi2_sequence,
    "mismatch_largest_sequence": mismatch_largest_sequence,
    "mismatch_first_position": mismatch_first_position,
    "mismatch_worst_length": mismatch_worst_length,
    **quantiles("mismatch", "trainer log-prob - sampler log-prob"),
    "retained_fraction": retained_fraction,
    "overreach": overreach,
    "asymmetry_gap": asymmetry_gap,
    "escape_excess": escape_excess,
    "clip_excess_positive": clip_excess_positive,
    "entropy": entropy,
    "entropy_negative": entropy_negative,
    "entropy_positive": entropy_positive,
    "nonfinite": nonfinite,
    "tokens": tokens,
    "advantage_fraction": advantage_fraction,
    "staleness": staleness,
    **scalars(),
}


ROLLOUTS = frozenset(
    {"reward_mean", "garbage_fraction", "length_mean", "length_p95", "truncated_fraction", "zero_variance_fraction"}
)
"""Signals of the rollouts alone."""
DRAWN = frozenset(quantiles("update", "") | quantiles("mismatch", ""))
"""Signals that are drawn only: no detector looks back on a quantile, so none is kept in the state."""


def read_all(summary: StepSummary) -> dict[str, float | None]:
    """Every signal of a summary; see `signals_of`."""
    return signals_of(Step(summary))


def signals_of(step: Step) -> dict[str, float | None]:
    """Every signal of one step; a value beyond `LARGEST` is read as the infinity of its sign."""
    found = {}
    for name, signal in SIGNALS.items():
        value = signal.read(step)
        if value is not None and abs(value) > LARGEST:
            value = math.copysign(math.inf, value)
        found[name] = value
    return found
