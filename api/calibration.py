"""Calibration files between the commands: levels from what a trainer measured, references for an agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from trimtab.agent.baselines import Baseline, BaselineSettings, Level
from trimtab.agent.reference import Reference, reference_of
from trimtab.agent.signals import Signal, entropy, mismatch_std, twin_asymmetry, twin_clip_fraction_negative
from trimtab.api.errors import UserError
from trimtab.hooks.calibration_file import LEVELS, CalibrationError, SignalLevel, read_calibration
from trimtab.hooks.records import StepSummary

READ: dict[str, Signal] = {
    "mismatch_std": mismatch_std,
    "twin_asymmetry": twin_asymmetry,
    "twin_clip_fraction_negative": twin_clip_fraction_negative,
}
"""How each of `LEVELS` is read from a step."""
MIN_STEPS = 10
"""Fewest that a level can be told from."""


class CalibrationUseError(UserError):
    """A calibration that cannot be made, or used; the message names what is missing, and the remedy."""


def levels_of(summaries: Sequence[StepSummary]) -> dict[str, SignalLevel]:
    """Robust location and scale of each of `LEVELS` over the steps.

    Raises:
        CalibrationUseError: a signal has too few steps that tell it.
    """
    found = {}
    for name in LEVELS:
        level = _level([value for summary in summaries if (value := READ[name](summary)) is not None], name)
        found[name] = SignalLevel(location=level.location, scale=level.scale)
    return found


def mean_entropy_of(summaries: Sequence[StepSummary]) -> float:
    """Nats, over the steps.

    Raises:
        CalibrationUseError: no step tells it.
    """
    values = [value for summary in summaries if (value := entropy(summary)) is not None]
    if not values:
        raise CalibrationUseError("entropy: no step tells it")
    return sum(values) / len(values)


def references(paths: Iterable[Path]) -> dict[str, Reference]:
    """What calibration files say to an agent, by the format of the sampler.

    Raises:
        CalibrationUseError: a file is no calibration, or two are of the same format.
    """
    found: dict[str, Reference] = {}
    for path in paths:
        try:
            reference = reference_of(read_calibration(path))
        except CalibrationError as error:
            raise CalibrationUseError(f"--calibration: {error}") from error
        if reference.sampler_format in found:
            raise CalibrationUseError(
                f"--calibration: {path}: sampler_format: {reference.sampler_format!r} has another file already; give "
                "one a format"
            )
        found[reference.sampler_format] = reference
    return found


def _level(values: Sequence[float], name: str) -> Level:
    settings = BaselineSettings(warmup=max(len(values), MIN_STEPS))
    baseline = Baseline()
    for value in values:
        baseline = baseline.updated(value, settings)
    if baseline.anchor is None:
        raise CalibrationUseError(
            f"{name}: only {len(values)} steps have enough tokens of both advantage signs, and {MIN_STEPS} are needed; "
            "raise --steps or rollout.prompts, or start from a policy that is sometimes right and sometimes wrong"
        )
    return baseline.anchor
