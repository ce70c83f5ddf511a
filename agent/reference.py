"""What a calibration says about the jobs of its format: the reference of those that report no BF16 twin.

It was learnt from the first steps of a run of the same format with a twin in every one, so it tells what staleness
alone does, and how far that format's sampler is from its trainer. It holds for the same denominator of the ratio, and
as long as the policy is about as peaked as it was then (`trimtab.agent.regime`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.agent.baselines import Level
from trimtab.hooks.calibration_file import LEVELS, FormatCalibration
from trimtab.hooks.controls import Controls


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One format's."""

    sampler_format: str
    ratio_reference: str
    entropy: float
    """Mean when it was learnt, nats."""
    mismatch_std: Level
    twin_asymmetry: Level
    """5 % quantile of the twin's log-ratio, A < 0 less A > 0, nats."""
    twin_clip_fraction_negative: Level
    """Share of negative-advantage tokens that the twin would clip, under nominal bounds."""


def reference_of(calibration: FormatCalibration) -> Reference:
    """What a calibration file says to an agent."""
    levels = {name: calibration.levels[name] for name in LEVELS}
    return Reference(
        sampler_format=calibration.sampler_format,
        ratio_reference=calibration.ratio_reference,
        entropy=calibration.entropy,
        **{name: Level(location=level.location, scale=level.scale) for name, level in levels.items()},
    )


def reference_for(references: Mapping[str, Reference], applied: Controls) -> Reference | None:
    """The one that is about a step with these controls, or None."""
    found = references.get(applied.sampler_format)
    return found if found is not None and found.ratio_reference == applied.ratio_reference else None
