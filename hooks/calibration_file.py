"""What a calibration of one number format leaves: the clip bounds' displacement, and what the signals were like.

`trimtab calibrate` writes it, from the first steps of a run in that format with its BF16 twin in every step. A trainer
starts calibrated clipping from it, with or without a twin of its own; an agent judges jobs in that format by it that
report no twin.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.hooks.calibration import ClipCalibration, RecentTokens
from trimtab.hooks.records import RecordError
from trimtab.hooks.sketch import BINS
from trimtab.hooks.wire import decode_value, encode

VERSION = 2
"""Of the file's form."""
LEVELS = ("mismatch_std", "twin_asymmetry", "twin_clip_fraction_negative")
"""Signals whose levels a calibration holds; the last two are of the BF16 twin."""


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
    kv_format: str
    ratio_reference: str
    objective: str
    setup: dict[str, Any]
    """The fields of the run that it belongs to: what is trained on what, and how old the sampler's weights are."""
    steps: int
    """It was learnt from."""
    entropy: float
    """Mean over these steps, nats: what was learnt is about a policy as peaked as that."""
    levels: dict[str, SignalLevel]
    """Of each of `LEVELS`."""
    clip: ClipCalibration

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise RecordError(f"steps: {self.steps}; a calibration is learnt from one step or more")
        if not 0 <= self.entropy < math.inf:
            raise RecordError(f"entropy: {self.entropy} nats; it is finite and not negative")
        for name in dict.fromkeys((*LEVELS, *self.levels)):
            if name not in self.levels:
                raise RecordError(f"levels.{name}: is missing; calibrate again")
            if name not in LEVELS:
                raise RecordError(f"levels.{name}: is no level of a calibration; these are {', '.join(LEVELS)}")
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
        return _decoded(Path(path).read_bytes())
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read ({error.strerror})") from error
    except json.JSONDecodeError as error:
        raise CalibrationError(f"{path}: not JSON: {error}") from error
    except ValueError as error:
        raise CalibrationError(f"{path}: {error}") from error
    except RecursionError:
        raise CalibrationError(f"{path}: nested more deeply than any calibration") from None


def write_calibration(path: str | Path, calibration: FormatCalibration) -> None:
    """Write it, whole or not at all. Raises `OSError` where the disk does not take it."""
    partial = Path(f"{path}.{os.getpid()}.partial")
    partial.write_bytes(encode(calibration))
    partial.replace(path)


def _decoded(data: bytes) -> FormatCalibration:
    """The calibration, its version looked at first: one of another version has other fields."""
    given = json.loads(data)
    version = given.get("version") if isinstance(given, dict) else VERSION
    if version != VERSION:
        raise RecordError(f"version: {version!r}, but this program reads version {VERSION}; calibrate again")
    calibration = decode_value(FormatCalibration, given)
    unknown = _unknown(given, json.loads(encode(calibration)))
    if unknown is not None:  # a file is written by hand, or by this program: a summary's tolerance is for newer hooks
        raise RecordError(f"{unknown}: is no field of a calibration; take it out, or calibrate again")
    return calibration


def _unknown(given: Mapping[str, Any], known: Mapping[str, Any], prefix: str = "") -> str | None:
    """The first field that is given and not known."""
    for name, value in given.items():
        if name not in known:
            return f"{prefix}{name}"
        if isinstance(value, Mapping):
            inner = _unknown(value, known[name], f"{prefix}{name}.")
            if inner is not None:
                return inner
    return None
