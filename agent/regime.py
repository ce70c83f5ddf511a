"""When what was learnt about ratios, mismatch and gradients stops being about this run.

How far ratios spread depends on how peaked the policy is and on what the loss divides by: in a healthy run whose
entropy falls from 0.37 to 0.014 nats the tails of both signs move several-fold with no harm done; the mismatch and the
gradient move with them. So the baselines of `CONDITIONED` hold for one regime. They are learnt anew when the mean
entropy has moved by `entropy_factor` since they were begun, and when a new generation of controls took effect (a clip
change moves clip fractions by itself). An open incident freezes them against the first, not against the second. They
hold for one pass over a buffer, too, since ratios spread from pass to pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from trimtab.agent.checks import MOST, require
from trimtab.agent.signals import RATIO_SIGNALS
from trimtab.agent.tracks import Track

CONDITIONED = frozenset(RATIO_SIGNALS) | {
    "mismatch_std",
    "mismatch_mean",
    "mismatch_kl",
    "ess",
    "asymmetry_gap",
    "escape_excess",
    "clip_excess_positive",
    "grad_norm",
    "update_norm",
}
"""Signals whose baselines hold for one regime and one pass."""


def conditioned(name: str, pass_index: int) -> int:
    """The pass whose baseline a step of that pass belongs to."""
    return pass_index if name in CONDITIONED else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeSettings:
    """What ends a regime."""

    entropy_factor: float = 1.5
    """Factor, up or down, on the mean entropy."""

    def __post_init__(self) -> None:
        require(1 < self.entropy_factor <= MOST, "regime.entropy_factor", self.entropy_factor, f"in (1, {MOST}]")


def mean_entropy(tracks: Mapping[str, Track], window: int) -> float | None:
    """Mean entropy of the latest full window; None while it fills, and when it is not a positive number."""
    track = tracks.get("entropy")
    mean = None if track is None else track.mean(window)
    return mean if mean is not None and isfinite(mean) and mean > 0 else None


def is_over(settings: RegimeSettings, begun_at: float | None, entropy: float | None) -> bool:
    """True when the entropy has left the regime that began at `begun_at`."""
    if begun_at is None or entropy is None:
        return False
    return not 1 / settings.entropy_factor <= entropy / begun_at <= settings.entropy_factor


def restarted(tracks: Mapping[str, Track]) -> dict[str, Track]:
    """The tracks with the baselines of `CONDITIONED` not yet learnt."""
    return {name: track.forgotten() if name in CONDITIONED else track for name, track in tracks.items()}
