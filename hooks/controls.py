"""The numbers that may change while a run is going, and who may change them.

A run owns its `Controls`: its configuration, which its own schedule may change. The agent, or a person, owns
*overrides*: a sparse mapping `{control: value}` laid over them. What is not overridden stays the run's own business, so
lifting an override returns the run to its configuration, and a format that the run switches by itself is never switched
back by a control that nobody asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Literal, get_args

RatioReference = Literal["sampler", "recomputed"]
ClipMode = Literal["nominal", "calibrated"]
Importance = Literal["none", "tis", "mis"]

ControlValue = bool | float | str
Overrides = Mapping[str, ControlValue]


class ControlError(ValueError):
    """A control that does not exist, or a value that it cannot take; the message names both and the remedy."""


class Liveness(StrEnum):
    """When a change of one control takes effect in a given trainer."""

    LIVE = "live"
    """At the next optimizer step."""
    NEXT_ROLLOUT = "next_rollout"
    """With the next batch of rollouts."""
    RESTART = "restart"
    """Only when the process starts again."""
    ABSENT = "absent"
    """This trainer does not have it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Closed interval that a number must lie in; `inf` is allowed only where `high` is infinite."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


NUMERIC_BOUNDS: dict[str, Bounds] = {
    "clip_low": Bounds(0.0, 1.0),
    "clip_high": Bounds(0.0, 100.0),
    "importance_low": Bounds(0.0, 1.0),
    "importance_high": Bounds(1.0, math.inf),
    "lr_scale": Bounds(0.0, 10.0),
}
CHOICES: dict[str, tuple[str, ...]] = {
    "ratio_reference": get_args(RatioReference),
    "clip_mode": get_args(ClipMode),
    "importance": get_args(Importance),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Every live control of a GRPO run, with neutral defaults.

    >>> Controls(ratio_reference="sampler").overlaid({"centering": True}).centering
    True
    """

    ratio_reference: RatioReference = "recomputed"
    """Denominator of the PPO ratio: the sampler's log-probs, or the trainer's, recomputed before the first update."""
    clip_low: float = 0.2
    """Nominal lower half-width: negative-advantage tokens with ratio < 1 - clip_low carry no gradient."""
    clip_high: float = 0.2
    """Nominal upper half-width: positive-advantage tokens with ratio > 1 + clip_high carry no gradient."""
    clip_mode: ClipMode = "nominal"
    """`calibrated` moves the bounds, per advantage sign, until the clip fractions are those of the BF16 twin."""
    centering: bool = False
    """Score centering: subtract the sampler's expectation of the score (arXiv 2609.20807)."""
    importance: Importance = "none"
    """Weight for trainer-old against sampler: none, truncated (`tis`) or masked (`mis`)."""
    importance_low: float = 0.5
    """Lower bound of the importance band; used by `mis`."""
    importance_high: float = 2.0
    """Upper bound of the importance band; used by `tis` and `mis`."""
    lr_scale: float = 1.0
    """Factor on the run's own learning rate."""
    sampler_format: str = "bf16"
    """Number format of the rollouts."""
    train_format: str = "bf16"
    """Number format of the trainer's forward pass."""

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            check_value(name, getattr(self, name))

    def overlaid(self, overrides: Overrides) -> Controls:
        """These controls with `overrides` laid over them.

        Raises:
            ControlError: an override names no control, or its value is of the wrong type or out of bounds.
        """
        if not overrides:
            return self
        for name, value in overrides.items():
            check_value(name, value)
        return replace(self, **overrides)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipBounds:
    """Log-space clip bounds: `low` clips tokens of negative advantage, `high` those of positive advantage. A `low` of
    -inf and a `high` of inf never clip."""

    low: float
    high: float

    def __post_init__(self) -> None:
        # NaN compares false with everything, so it fails here too.
        if not (self.low <= self.high and self.low < math.inf and self.high > -math.inf):
            raise ControlError(
                f"clip_bounds: low = {self.low!r} and high = {self.high!r} bound nothing; give low <= high in nats, "
                "-inf or inf for a side that never clips"
            )

    @classmethod
    def nominal(cls, controls: Controls) -> ClipBounds:
        """[log(1 - clip_low), log(1 + clip_high)]; a clip_low of 1 never clips."""
        low = math.log1p(-controls.clip_low) if controls.clip_low < 1 else -math.inf
        return cls(low=low, high=math.log1p(controls.clip_high))


CONTROL_NAMES: tuple[str, ...] = tuple(f.name for f in fields(Controls))


def check_value(name: str, value: Any) -> None:
    """Raise `ControlError` unless `value` is one that the control `name` can take."""
    if name not in CONTROL_NAMES:
        raise ControlError(f"{name}: no such control; the controls are {', '.join(CONTROL_NAMES)}")
    if name in NUMERIC_BOUNDS:
        bounds = NUMERIC_BOUNDS[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value not in bounds:
            raise ControlError(f"{name}: {value!r} is not a number in [{bounds.low:g}, {bounds.high:g}]")
    elif name in CHOICES:
        if value not in CHOICES[name]:
            raise ControlError(f"{name}: {value!r} is none of {', '.join(CHOICES[name])}")
    elif name == "centering":
        if not isinstance(value, bool):
            raise ControlError(f"{name}: {value!r} is not true or false")
    elif not isinstance(value, str) or not value:
        raise ControlError(f"{name}: {value!r} is not the name of a number format")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What one trainer can do: when each control takes effect, and what its rollouts record."""

    controls: dict[str, Liveness]
    """Liveness by control name; a control that is not listed is ABSENT."""
    rollout_logprobs: bool = False
    """The sampler's log-probs are recorded."""
    sampler_head: int = 0
    """Number of top log-probs recorded for each sampled token; 0 when there is no head."""
    shadow: bool = False
    """A BF16 twin of the ratio can be computed."""
    sampler_formats: tuple[str, ...] = ()
    """Number formats that the sampler can be switched to."""
    train_formats: tuple[str, ...] = ()
    """Number formats that the trainer's forward pass can be switched to."""

    def __post_init__(self) -> None:
        for name in self.controls:
            if name not in CONTROL_NAMES:
                raise ControlError(f"controls.{name}: no such control; the controls are {', '.join(CONTROL_NAMES)}")
        if self.sampler_head < 0:
            raise ControlError(f"sampler_head: {self.sampler_head} is negative; give 0 when no head is recorded")

    def refusal(self, name: str, value: ControlValue) -> str | None:
        """Why this trainer cannot set control `name` to `value` while it runs, or None if it can."""
        liveness = self.controls.get(name, Liveness.ABSENT)
        if liveness in (Liveness.ABSENT, Liveness.RESTART):
            return f"{name}: {liveness.value} in this trainer"
        if name == "centering" and value and not self.sampler_head:
            return "centering: the rollouts record no sampler head (top log-probs), which score centering needs"
        if name == "importance" and value != "none" and not self.rollout_logprobs:
            return "importance: the rollouts record no sampler log-probs"
        if name == "clip_mode" and value == "calibrated" and not self.shadow:
            return "clip_mode: calibrated bounds need the BF16 twin, which this trainer cannot compute"
        formats = {"sampler_format": self.sampler_formats, "train_format": self.train_formats}.get(name)
        if formats is not None and value not in formats:
            return f"{name}: {value!r} is none of {', '.join(formats) or 'no format (none can be switched to)'}"
        return None
