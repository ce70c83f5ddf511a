"""The unit of every signal: for the axis of a chart, and for the name of its Prometheus metric."""

from __future__ import annotations

from enum import StrEnum

from trimtab.agent.signals import DRAWN


class Unit(StrEnum):
    """What a signal is measured in, or counts."""

    NATS = "nats"
    RATIO = "ratio"
    """A share in [0, 1], or a difference of two."""
    TOKENS = "tokens"
    VALUES = "values"
    """Numbers in tensors."""
    VERSIONS = "versions"
    """Of the weights."""
    NONE = ""
    """A pure number, or one on the run's own scale, such as its reward."""


UNITS: dict[str, Unit] = {
    **dict.fromkeys(sorted(DRAWN), Unit.NATS),
    "update_std": Unit.NATS,
    "clip_fraction_positive": Unit.RATIO,
    "clip_fraction_negative": Unit.RATIO,
    "lost_penalty": Unit.RATIO,
    "skew": Unit.NONE,
    "asymmetry": Unit.NATS,
    "asymmetry_mean": Unit.NATS,
    "mismatch_std": Unit.NATS,
    "mismatch_mean": Unit.NATS,
    "mismatch_kl": Unit.NATS,
    "ess": Unit.RATIO,
    "ess_sequence": Unit.RATIO,
    "chi2_token": Unit.NONE,
    "chi2_sequence": Unit.NONE,
    "mismatch_largest_sequence": Unit.NATS,
    "mismatch_first_position": Unit.NATS,
    "mismatch_worst_length": Unit.NATS,
    "retained_fraction": Unit.RATIO,
    "overreach": Unit.RATIO,
    "asymmetry_gap": Unit.NATS,
    "escape_excess": Unit.RATIO,
    "clip_excess_positive": Unit.RATIO,
    "entropy": Unit.NATS,
    "entropy_negative": Unit.NATS,
    "entropy_positive": Unit.NATS,
    "nonfinite": Unit.VALUES,
    "tokens": Unit.TOKENS,
    "advantage_fraction": Unit.RATIO,
    "staleness": Unit.VERSIONS,
    "garbage_fraction": Unit.RATIO,
    "reward_mean": Unit.NONE,
    "grad_norm": Unit.NONE,
    "update_norm": Unit.NONE,
    "length_mean": Unit.TOKENS,
    "length_p95": Unit.TOKENS,
    "truncated_fraction": Unit.RATIO,
    "zero_variance_fraction": Unit.RATIO,
    "head_tv": Unit.RATIO,
    "token_mult_prob_error": Unit.NONE,
}
"""By signal, every one of `SIGNALS`."""
