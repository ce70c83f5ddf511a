"""Punished tokens escape: the log-ratio drifts apart between advantage signs.

Let a = q05(A < 0) - q05(A > 0) of the clipped log-ratio (nats). Below the lower clip bound a punished token carries
no gradient, so when a falls, penalties are lost (arXiv 2609.22870). No absolute limit on a works: two versions of
staleness alone give -0.25 in healthy BF16 runs, and |a| > 0.2 fired on 12 of 13 healthy runs. The judge is one of three
references, and the verdict says which.

1. The BF16 twin, where it is reported (at most `twin_age` steps ago): g = a - a(twin) takes away what staleness does.
   CRITICAL when mean5(g) < -0.5 and mean5(c+) > 0.02, c+ being the share of positive tokens that the clip silences.
   Measured: mean5(g) is -1.3 to -1.4 five steps into collapsing runs, and as low as -1.08 late in healthy ones at low
   entropy, where c+ stays below 0.016; so neither leg is enough, and both are past their limits within 4 to 6 steps
   of the cause. Where calibration moves the bounds it is c+ that the calibration holds down, so there the second leg
   is the penalties themselves, WARN: mean5(e) > 0.1, e being the share of negative tokens that the bound in effect
   silences, less that of the twin under nominal bounds. Measured: mostly 0.10 to 0.22 in failing runs, at most 0.080 in
   healthy NVFP4 ones, 0.06 to 0.12 in calibrated ones whose displacement has reached its cap.
2. A calibration of the sampler's format (`trimtab.agent.reference`), where there is no such twin: the same rules with
   the values that the twin had when it was calibrated. Only while the regime is the calibration's, since what staleness
   does changes with the policy.
3. The learnt baseline otherwise, WARN: the downward CUSUM (k = 1, h = 12) of the standardised distance of a, or of
   the difference of means, to its anchor; h is twice that while the anchor is not settled (`trimtab.agent.baselines`),
   since an error of the anchor adds to every step. The difference of signs cancels common wander of the noise.
   Expected false alarms: exp(-2 h (1 - e)) a step on white noise, e being the anchor's error in sd (0.13 typically);
   over the errors of settled anchors 4 in 10^8. Seen 3 steps into a shift of the lowest 5 % of the negative tokens by
   0.2 nats, 4 to 9 into one by 0.02 under 15 % wander (12k tokens of each sign). The baseline holds for one regime
   (`trimtab.agent.regime`); between regimes the verdict is INCONCLUSIVE.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from trimtab.agent.checks import MOST, require
from trimtab.agent.cusum import Cusum, CusumSettings
from trimtab.agent.detector import Role
from trimtab.agent.reading import Reading
from trimtab.agent.reference import Reference
from trimtab.agent.state import Finding, State
from trimtab.agent.values import quick

RESOLUTION = 1e-4
"""What a sketch tells a quantile to, nats: no difference below it is one, however steady the run has been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsymmetrySettings:
    """Limits of both rules."""

    gap_limit: float = 0.5
    """On -mean5(g), nats."""
    clip_limit: float = 0.02
    """On mean5(c+)."""
    escape_limit: float = 0.1
    """On mean5(e), where the bounds are moved."""
    twin_age: int = 25
    """Steps for which the latest values of the twin are still its word; a twin is often computed every 20 steps."""
    cusum: CusumSettings = field(default_factory=lambda: CusumSettings(h=12.0))

    def __post_init__(self) -> None:
        self.cusum.check("detectors.asymmetry.cusum")
        require(0 < self.gap_limit <= MOST, "detectors.asymmetry.gap_limit", self.gap_limit, f"in (0, {MOST}]")
        require(0 < self.clip_limit < 1, "detectors.asymmetry.clip_limit", self.clip_limit, "between 0 and 1")
        require(0 < self.escape_limit < 1, "detectors.asymmetry.escape_limit", self.escape_limit, "between 0 and 1")
        require(0 <= self.twin_age <= MOST, "detectors.asymmetry.twin_age", self.twin_age, f"0 to {MOST}")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Asymmetry:
    """Remembers the sums of distances to the anchors; forgets them with the regime."""

    ROLE: ClassVar[Role] = Role.SIGNATURE
    SIGNALS: ClassVar[tuple[str, ...]] = ("asymmetry", "asymmetry_mean")

    tail: Cusum = field(default_factory=Cusum)
    """Of the difference of 5 % quantiles."""
    bulk: Cusum = field(default_factory=Cusum)
    """Of the difference of means."""

    def update(self, settings: AsymmetrySettings, reading: Reading) -> tuple[Asymmetry, Finding]:
        """See the module."""
        after = Asymmetry(
            tail=_followed(self.tail, "asymmetry", settings, reading),
            bulk=_followed(self.bulk, "asymmetry_mean", settings, reading),
        )
        gap = reading.mean("asymmetry_gap", max_age=settings.twin_age)
        moved = reading.summary.clip_bounds is not None
        clip = reading.mean("clip_fraction_positive")
        escape = reading.mean("escape_excess", max_age=settings.twin_age)
        if reading.broken(gap, clip, escape, reading.value("asymmetry"), reading.value("asymmetry_mean")):
            return after, Finding(state=State.INCONCLUSIVE, message="a log-ratio's asymmetry is not finite")
        against = "the BF16 twin"
        if gap is None and reading.reference is not None:
            against = f"the calibration of {reading.reference.sampler_format}"
            gap, escape = _calibrated(reading, reading.reference)
        if gap is not None and moved and escape is not None:
            return after, _behind_moved_bounds(gap, escape, settings, against)
        if gap is not None and not moved and clip is not None:
            return after, _nominally(gap, clip, settings, against, reading)
        return after, _against_baseline(after, settings, reading)


def _followed(cusum: Cusum, signal: str, settings: AsymmetrySettings, reading: Reading) -> Cusum:
    if not reading.is_anchored(signal):
        return Cusum()
    distance = reading.distance(signal, floor=RESOLUTION)
    return cusum if distance is None else cusum.updated(distance, settings.cusum)


def _calibrated(reading: Reading, reference: Reference) -> tuple[float | None, float | None]:
    """Gap and escape, by the values that the twin had when the format was calibrated."""
    own, clipped = reading.mean("asymmetry"), reading.mean("clip_fraction_negative")
    return (
        None if own is None else own - reference.twin_asymmetry.location,
        None if clipped is None else clipped - reference.twin_clip_fraction_negative.location,
    )


def _nominally(gap: float, clip: float, settings: AsymmetrySettings, against: str, reading: Reading) -> Finding:
    state = State.OK
    if gap < -settings.gap_limit and clip > settings.clip_limit:  # as for the conjunction of `mismatch`
        state = State.INCONCLUSIVE if reading.learns_from_little else State.CRITICAL
    return Finding(
        state=state,
        score=max(min(-gap / settings.gap_limit, clip / settings.clip_limit), 0.0),
        evidence={
            "asymmetry_gap": gap,
            "gap_limit": -settings.gap_limit,
            "clip_fraction_positive": clip,
            "clip_limit": settings.clip_limit,
        },
        message=f"against {against}: negative tail {gap:+.3f} nats (limit {-settings.gap_limit:g}), "
        f"positive clip fraction {clip:.4f} (limit {settings.clip_limit:g})",
    )


def _behind_moved_bounds(gap: float, escape: float, settings: AsymmetrySettings, against: str) -> Finding:
    alarm = gap < -settings.gap_limit and escape > settings.escape_limit
    return Finding(
        state=State.WARN if alarm else State.OK,
        score=max(min(-gap / settings.gap_limit, escape / settings.escape_limit), 0.0),
        evidence={
            "asymmetry_gap": gap,
            "gap_limit": -settings.gap_limit,
            "escape_excess": escape,
            "escape_limit": settings.escape_limit,
        },
        message=f"against {against}, with moved clip bounds: negative tail {gap:+.3f} nats "
        f"(limit {-settings.gap_limit:g}), {escape:+.1%} of the punished tokens escape "
        f"(limit {settings.escape_limit:.0%})",
    )


def _against_baseline(after: Asymmetry, settings: AsymmetrySettings, reading: Reading) -> Finding:
    if not reading.is_anchored("asymmetry"):
        return Finding(
            state=reading.missing("asymmetry"),
            message="no recent BF16 twin, no calibration of this format, and no baseline of this regime yet",
        )
    fall = max(after.tail.down, after.bulk.down)
    limit = settings.cusum.h if reading.is_settled("asymmetry") else 2 * settings.cusum.h
    name = "tail" if after.tail.down >= after.bulk.down else "mean"
    return Finding(
        state=State.WARN if fall >= limit else State.OK,
        score=fall / limit,
        evidence={"tail_fall": after.tail.down, "mean_fall": after.bulk.down, "fall_limit": limit},
        message=f"against the learnt baseline: {name} asymmetry {fall:.1f} sd summed below its anchor "
        f"(limit {limit:g})",
    )
