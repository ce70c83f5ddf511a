"""Sampler and trainer disagree, and the clipped objective feels it.

Let d = trainer log-prob - sampler log-prob of a sampled token (nats), sd(d) its spread over a step, c+ the share of
positive-advantage tokens that the upper clip bound in effect silences, and mean5 the mean of the last five steps.

1. Conjunction, CRITICAL: mean5(sd(d)) > 0.2 and mean5(c+) > 0.02. Measured on small GRPO runs in BF16, FP8 and NVFP4:
   silent on 33 of 34 healthy runs of 110 to 150 steps (the exception is a BF16 run four versions stale), and within 5
   steps of the cause on 14 of 14 failing ones, 4 to 27 steps before the reward fell to 60 % of its peak. Each leg
   alone is worse: late in healthy runs sd(d) has single-step spikes of 0.4, and its k3 divergence alone fired on 5 of
   21 fresh healthy runs. While fewer than a quarter of the tokens have an advantage it is INCONCLUSIVE: two of five
   healthy NVFP4 runs of 140 steps, at a reward of 0.97, alarmed on two or three responses that were clipped.
2. Blind spot. When the ratio is taken against recomputed log-probs, c+ does not contain d; when calibration moves the
   bounds, c+ is what the calibration makes it (0.000 to 0.009 in five runs whose sd(d) went on growing from 0.5 to
   1.6). Either way the conjunction is silent however large the mismatch: four staleness collapses went unseen that
   way. There the second leg is harm instead, WARN: mean5(sd(d)) > 0.2 and mean5(reward) below 75 % of its peak, unless
   score centering or an importance weight already corrects for d. A mismatch that has done no harm yet is named in
   the message and does not alarm: no limit on d alone separates the recomputed runs that collapse from those that do
   not.

After score centering or calibrated clipping d stays large for good, so that is not what ends the alarm: c+ falling
is, and harm staying away. Expected false alarms: one in some 4,000 real healthy steps, as above, and none in 20,000
drawn ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading, share_of
from trimtab.agent.state import Finding, State

RATIO_STD_FLOOR = 1e-6
"""Spread of the clipped log-ratio below which the ratio is 1 for every token and its clip fraction says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchSettings:
    """Limits of both rules."""

    std_limit: float = 0.2
    """On mean5(sd(d)), nats."""
    clip_limit: float = 0.02
    """On mean5(c+)."""
    reward_limit: float = 0.75
    """Share of the peak reward below which a run counts as harmed where c+ is blind."""

    def __post_init__(self) -> None:
        require(0 < self.std_limit <= MOST, "detectors.mismatch.std_limit", self.std_limit, f"in (0, {MOST}]")
        require(0 < self.clip_limit < 1, "detectors.mismatch.clip_limit", self.clip_limit, "between 0 and 1")
        require(0 < self.reward_limit < 1, "detectors.mismatch.reward_limit", self.reward_limit, "between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Remembers nothing: the windows are the signals' own."""

    ROLE: ClassVar[Role] = Role.SIGNATURE
    SIGNALS: ClassVar[tuple[str, ...]] = ("mismatch_std", "mismatch_kl", "ess")

    def update(self, settings: MismatchSettings, reading: Reading) -> tuple[Mismatch, Finding]:
        """See the module."""
        return self, _judged(settings, reading)


def _judged(settings: MismatchSettings, reading: Reading) -> Finding:
    std = reading.mean("mismatch_std")
    if std is None:
        return Finding(
            state=reading.missing("mismatch_std"),
            message="no sampler log-probs, or fewer steps than one window",
        )
    spread, clip = reading.mean("update_std"), reading.mean("clip_fraction_positive")
    if reading.broken(reading.value("mismatch_mean"), std, spread, clip):
        return Finding(state=State.INCONCLUSIVE, message="the mismatch, or what the clip does, is not finite")
    if spread is not None and max(spread, std) < RATIO_STD_FLOOR:
        return Finding(
            state=State.INCONCLUSIVE,
            evidence={"mismatch_std": std, "update_std": spread},
            message="every ratio is 1: not informative (on-policy, one pass, one engine)",
        )
    applied = reading.summary.applied
    blinding = "moved clip bounds" if reading.summary.clip_bounds else "recomputed ratios"
    blind = reading.summary.clip_bounds is not None or applied.ratio_reference == "recomputed"
    uncorrected = not applied.centering and applied.importance == "none"
    if std > settings.std_limit and clip is not None and clip > settings.clip_limit:
        state = State.INCONCLUSIVE if reading.learns_from_little else State.CRITICAL
        return _conjunction(settings, state, std, clip, reading)
    if std > settings.std_limit and blind and uncorrected:
        return _blind_spot(settings, reading, std, blinding)
    if clip is None:
        return Finding(
            state=reading.missing("update_std"),
            evidence={"mismatch_std": std},
            message="too few positive-advantage tokens to see what the clip does",
        )
    return _conjunction(settings, State.OK, std, clip, reading)


def _conjunction(settings: MismatchSettings, state: State, std: float, clip: float, reading: Reading) -> Finding:
    calibrated, told = _calibrated(reading)
    return Finding(
        state=state,
        score=min(std / settings.std_limit, clip / settings.clip_limit),
        evidence={
            "mismatch_std": std,
            "std_limit": settings.std_limit,
            "clip_fraction_positive": clip,
            "clip_limit": settings.clip_limit,
        }
        | calibrated,
        message=f"mismatch std {std:.3f} (limit {settings.std_limit:g}{told}), "
        f"positive clip fraction {clip:.4f} (limit {settings.clip_limit:g})",
    )


def _calibrated(reading: Reading) -> tuple[dict[str, float], str]:
    """The spread that the format had when it was calibrated, as evidence and in words; no limit hangs on it."""
    if reading.reference is None:
        return {}, ""
    level = reading.reference.mismatch_std
    return {"mismatch_std_calibrated": level.location}, f", calibrated {level.location:.3f}"


def _blind_spot(settings: MismatchSettings, reading: Reading, std: float, blinding: str) -> Finding:
    reward, peak = reading.mean("reward_mean"), reading.peak("reward_mean")
    calibrated, told = _calibrated(reading)
    evidence = {"mismatch_std": std, "std_limit": settings.std_limit} | calibrated
    if reward is None or peak is None or not isfinite(reward):
        return Finding(
            state=State.INCONCLUSIVE,
            evidence=evidence,
            message=f"mismatch std {std:.3f}, to which {blinding} are blind, and no reward to show its harm",
        )
    floor = share_of(peak, settings.reward_limit)
    return Finding(
        state=State.WARN if reward < floor else State.OK,
        score=std / settings.std_limit if reward < floor else 0.0,
        evidence=evidence | {"reward_mean": reward, "reward_floor": floor},
        message=f"mismatch std {std:.3f}{told} with {blinding}, which blind the clip fraction to it; "
        f"reward {reward:.3f}, peak {peak:.3f}",
    )
