"""What a calibration of one number format leaves: the clip bounds' displacement, and what the signals were like.

`trimtab calibrate` writes it, from the first steps of a run in that format with its BF16 twin in every step. A trainer
starts calibrated clipping from it, with or without a twin of its own; an agent judges jobs in that format by it that
report no twin.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.hooks.calibration import ClipCalibration, RecentTokens
from trimtab.hooks.records import RecordError
from trimtab.hooks.sketch import BINS
from trimtab.hooks.wire import decode, encode

VERSION = 1
"""Of the file's form."""


class CalibrationError(ValueError):
    """A file that is no calibration; the message names the file and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalLevel:
    """A location and a scale, in the signal's unit."""

    location: float
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatCalibration:
    """One format's calibration."""

    version: int
    sampler_format: str
    train_format: str
    ratio_reference: str
    setup: dict[str, Any]
    """The tables of the run that it belongs to: task, model, warm start, outliers."""
    steps: int
    """It was learnt from."""
    entropy: float
    """Mean over these steps, nats: what was learnt is about a policy as peaked as that."""
    levels: dict[str, SignalLevel]
    """By signal: `mismatch_std`, and of the BF16 twin `twin_asymmetry` and `twin_clip_fraction_negative`."""
    clip: ClipCalibration

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise RecordError(f"version: {self.version}, but this program reads version {VERSION}; calibrate again")
        if self.steps < 1:
            raise RecordError(f"steps: {self.steps}; a calibration is learnt from one step or more")
        if not 0 <= self.entropy < math.inf:
            raise RecordError(f"entropy: {self.entropy} nats; it is finite and not negative")
        for name, level in self.levels.items():
            if not (math.isfinite(level.location) and 0 <= level.scale < math.inf):
                raise RecordError(f"levels.{name}: {level}; both are finite, and a scale is not negative")
        for sign in ("negative", "positive"):
            for ratio in ("update", "shadow"):
                _check_tokens(f"clip.{sign}.{ratio}", getattr(getattr(self.clip, sign), ratio))


def _check_tokens(field: str, tokens: RecentTokens) -> None:
    if not 0 <= tokens.tokens < math.inf:
        raise RecordError(f"{field}.tokens: {tokens.tokens}; a count is finite and not negative")
    for name in ("weights", "updates"):
        for index, value in getattr(tokens, name).items():
            if not (0 <= index < BINS and 0 <= value < math.inf):
                raise RecordError(
                    f"{field}.{name}: {value} in bin {index}; of {BINS} bins each is finite and not negative"
                )


def read_calibration(path: str | Path) -> FormatCalibration:
    """The calibration in a file.

    Raises:
        CalibrationError: there is none.
    """
    try:
        return decode(FormatCalibration, Path(path).read_bytes())
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise CalibrationError(f"{path}: {error}") from error


def write_calibration(path: str | Path, calibration: FormatCalibration) -> None:
    """Write it, whole or not at all. Raises `OSError` where the disk does not take it."""
    partial = Path(f"{path}.{os.getpid()}.partial")
    partial.write_bytes(encode(calibration))
    partial.replace(path)
