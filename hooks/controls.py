"""The numbers that may change while a run is going, and who may change them.

A run owns its `Controls`: its configuration, which its own schedule may change. The agent, or a person, owns
*overrides*: a sparse mapping `{control: value}` laid over them. What is not overridden stays the run's own business, so
lifting an override returns the run to its configuration, and a format that the run switches by itself is never switched
back by a control that nobody asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Literal, get_args, get_type_hints

Objective = Literal["ppo", "gspo", "cispo", "reinforce"]
Aggregation = Literal["token_mean", "sequence_mean", "fixed_length"]
Advantage = Literal["group_std", "group_mean"]
RatioReference = Literal["sampler", "recomputed"]
ClipMode = Literal["nominal", "calibrated"]
ClipRebalance = Literal["quantile", "update_ratio"]
Importance = Literal["none", "tis", "mis"]
ImportanceInside = Literal["ratio", "one"]
ImportanceLevel = Literal["token", "sequence", "geometric"]
KlEstimator = Literal["k1", "k2", "k3"]
Backward = Literal["quantized", "high_precision", "dequantized"]
KvFormat = Literal["none", "fp8", "fp8-e5m2"]

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
    "overlong_penalty": Bounds(0.0, 10.0),
    "clip_low": Bounds(0.0, 1.0),
    "clip_high": Bounds(0.0, 100.0),
    "dual_clip": Bounds(1.0, math.inf),
    "kl_coef": Bounds(0.0, 10.0),
    "importance_low": Bounds(0.0, 1.0),
    "importance_high": Bounds(1.0, math.inf),
    "lr_scale": Bounds(0.0, 10.0),
    "bf16_last": Bounds(0.0, 1.0),
    "max_staleness": Bounds(0.0, math.inf),
}
FORMATS = ("sampler_format", "train_format")
"""Controls that name a number format; which ones there are is the trainer's business."""
CHECKPOINTS = ("restore", "pin")
"""Controls that name a checkpoint, as `ATTEMPT:STEP`, or nothing."""
CHECKPOINT = re.compile(r"\d+:\d+")
"""`ATTEMPT:STEP`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Every live control of a GRPO run, with neutral defaults.

    >>> Controls(ratio_reference="sampler").overlaid({"centering": True}).centering
    True
    """

    objective: Objective = "ppo"
    """What weights a token's score: the clipped ratio (`ppo`), the sequence's clipped geometric-mean ratio (`gspo`),
    the clipped ratio as a constant (`cispo`), or nothing (`reinforce`)."""
    aggregation: Aggregation = "token_mean"
    """Mean over live tokens (DAPO), mean over sequences of their means (GRPO), or sum over live tokens by the number of
    sequences and the longest possible response (Dr.GRPO)."""
    advantage: Advantage = "group_std"
    """Reward less the group's mean, divided by the group's standard deviation (GRPO) or not (Dr.GRPO)."""
    dynamic_sampling: bool = False
    """Replace groups in which every reward is the same by newly sampled ones (DAPO)."""
    overlong_penalty: float = 0.0
    """Reward that a response loses at full length, growing from 0 over the last tokens before it (DAPO); 0 is off."""
    ratio_reference: RatioReference = "recomputed"
    """Denominator of the PPO ratio: the sampler's log-probs, or the trainer's, recomputed before the first update."""
    clip_low: float = 0.2
    """Nominal lower half-width: negative-advantage tokens with ratio < 1 - clip_low carry no gradient."""
    clip_high: float = 0.2
    """Nominal upper half-width: positive-advantage tokens with ratio > 1 + clip_high carry no gradient."""
    dual_clip: float = math.inf
    """Largest ratio that a negative-advantage token is punished by (dual-clip PPO); infinity is off."""
    clip_mode: ClipMode = "nominal"
    """`calibrated` moves the bounds, per advantage sign, until the clip fractions are those of the BF16 twin."""
    clip_rebalance: ClipRebalance = "quantile"
    """What a calibrated upper bound restores: the twin's clip fraction, or its ratio of positive to negative update."""
    kl_coef: float = 0.0
    """Weight of the penalty on the KL divergence from the reference weights; 0 is off."""
    kl_estimator: KlEstimator = "k3"
    """How that divergence is estimated."""
    centering: bool = False
    """Score centering: subtract the sampler's expectation of the score (arXiv 2609.20807)."""
    importance: Importance = "none"
    """Weight for trainer-old against sampler: none, truncated (`tis`) or masked (`mis`). It needs a recomputed ratio,
    or the objective `reinforce`, where it is for trainer against sampler."""
    importance_low: float = 0.0
    """Lower bound of the importance band."""
    importance_high: float = 2.0
    """Upper bound of the importance band."""
    importance_inside: ImportanceInside = "ratio"
    """Weight of what `mis` keeps: the ratio (IcePop as in slime, NeMo-RL and prime-rl) or one (IcePop as in the
    score-centering paper)."""
    importance_level: ImportanceLevel = "token"
    """What the band is about: each token's ratio, or the sequence's, as a product or as a geometric mean."""
    lr_scale: float = 1.0
    """Factor on the run's own learning rate."""
    sampler_format: str = "bf16"
    """Number format of the rollouts."""
    train_format: str = "bf16"
    """Number format of the trainer's forward pass."""
    bf16_last: float = 0.0
    """Share of the trainer's decoder layers, from the end and rounded up, that compute in BF16 whatever the format."""
    kv_format: KvFormat = "none"
    """How the sampler stores keys and values: as computed, or in FP8 (E4M3, or E5M2)."""
    backward: Backward = "dequantized"
    """What the trainer's backward pass multiplies by: operands quantised anew, the unquantised ones, or those that the
    forward pass saw."""
    max_staleness: float = math.inf
    """Rollouts are not sampled with weights that are more versions older than this; infinity leaves it to the run."""
    restore: str = ""
    """Go back to the checkpoint `ATTEMPT:STEP`, once, and go on from there with everything else as it is now."""
    pin: str = ""
    """Keep the checkpoint `ATTEMPT:STEP`, however many newer ones there are."""
    paused: bool = False
    """Wait at the end of a step, for no longer than the trainer allows."""

    def __post_init__(self) -> None:
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if type(value) is not type(default) or value != default:  # what it is by default it can be
                check_value(name, value)

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

    def conflict(self) -> tuple[tuple[str, ...], str] | None:
        """Controls that contradict each other, and why; None where they are all of one mind.

        Score centering integrates a weight over the vocabulary at one prefix, so the weight has to be a function of the
        token alone: a sequence's ratio is not. Importance weights the ratio's denominator against the sampler, and so
        has no effect where that denominator is the sampler.
        """
        if self.clip_mode == "calibrated" and self.objective == "gspo":
            reason = "clip_mode: calibrated bounds are for tokens' ratios, and gspo clips a sequence's"
            return ("clip_mode", "objective"), reason
        if self.centering and self.objective == "gspo":
            return ("centering", "objective"), "centering: needs a weight for each token, and gspo has one a sequence"
        if self.centering and self.importance != "none" and self.importance_level != "token":
            reason = f"centering: needs a weight for each token, and importance_level is {self.importance_level!r}"
            return ("centering", "importance_level", "importance"), reason
        if self.importance != "none" and self.ratio_reference == "sampler" and self.objective != "reinforce":
            reason = (
                f"importance: {self.importance!r} would weight nothing, since the ratio is against the sampler "
                "already; set ratio_reference to recomputed, or importance to none"
            )
            return ("importance", "ratio_reference", "objective"), reason
        return None


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


MAX_FORMATS = 64
"""Number formats that a trainer can say that it has, on either side."""
MAX_REASON_LENGTH = 300
"""Characters in what is told of a control that cannot be changed."""
MAX_KEPT = 4096
"""Checkpoints that a trainer can say that it has."""
_DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(Controls)}
CONTROL_NAMES = tuple(_DEFAULTS)
_KINDS = get_type_hints(Controls)
CHOICES: dict[str, tuple[str, ...]] = {name: get_args(kind) for name, kind in _KINDS.items() if get_args(kind)}
"""The values of each control that is one of several."""
SWITCHES = tuple(name for name, kind in _KINDS.items() if kind is bool)
"""Controls that are true or false."""


def no_such_control(name: str) -> str:
    """What is told of a name that no control has."""
    near = get_close_matches(name, CONTROL_NAMES)
    meant = f"did you mean {' or '.join(near)}? The" if near else "the"
    return f"{name}: no such control; {meant} controls are {', '.join(CONTROL_NAMES)}"


def check_value(name: str, value: Any) -> None:
    """Raise `ControlError` unless `value` is one that the control `name` can take."""
    if name not in CONTROL_NAMES:
        raise ControlError(no_such_control(name))
    if name in NUMERIC_BOUNDS:
        bounds = NUMERIC_BOUNDS[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value not in bounds:
            raise ControlError(f"{name}: {value!r} is not a number in [{bounds.low:g}, {bounds.high:g}]")
    elif name in CHOICES:
        if value not in CHOICES[name]:
            raise ControlError(f"{name}: {value!r} is none of {', '.join(CHOICES[name])}")
    elif name in SWITCHES:
        if not isinstance(value, bool):
            raise ControlError(f"{name}: {value!r} is not true or false")
    elif name in FORMATS:
        if not isinstance(value, str) or not value:
            raise ControlError(f"{name}: {value!r} is not the name of a number format")
    elif not isinstance(value, str) or not (value == "" or CHECKPOINT.fullmatch(value)):
        raise ControlError(f"{name}: {value!r} is no checkpoint; give ATTEMPT:STEP, such as 1:40")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What one trainer can do: when each control takes effect, which values it can take there, and what is recorded."""

    controls: dict[str, Liveness]
    """Liveness by control name; a control that is not listed is ABSENT."""
    rollout_logprobs: bool = False
    """The sampler's log-probs are recorded."""
    sampler_head: int = 0
    """Number of top log-probs recorded for each sampled token; 0 when there is no head."""
    shadow: bool = False
    """Calibrated clip bounds can be had: a BF16 twin of the ratio is computed, or a calibration of the format is at
    hand."""
    sampler_formats: tuple[str, ...] = ()
    """Number formats that the sampler can be switched to."""
    train_formats: tuple[str, ...] = ()
    """Number formats that the trainer's forward pass can be switched to."""
    checkpoints: tuple[str, ...] = ()
    """Checkpoints that the trainer can go back to or keep, as `ATTEMPT:STEP`."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a control is absent or only for a restart, by its name, in words for people."""

    def __post_init__(self) -> None:
        for field_name in ("controls", "reasons"):
            for name in getattr(self, field_name):
                if name not in CONTROL_NAMES:
                    raise ControlError(f"{field_name}.{no_such_control(name)}")
        for name, reason in self.reasons.items():
            if len(reason) > MAX_REASON_LENGTH:
                raise ControlError(f"reasons.{name}: {len(reason)} characters are more than {MAX_REASON_LENGTH}")
        for name, most in (("sampler_formats", MAX_FORMATS), ("train_formats", MAX_FORMATS), ("checkpoints", MAX_KEPT)):
            if len(getattr(self, name)) > most:
                raise ControlError(f"{name}: {len(getattr(self, name))} entries are more than {most}; report fewer")
        if self.sampler_head < 0:
            raise ControlError(f"sampler_head: {self.sampler_head} is negative; give 0 when no head is recorded")

    def refusal(self, name: str, value: ControlValue) -> str | None:
        """Why this trainer cannot set control `name` to `value` while it runs, or None if it can."""
        liveness = self.controls.get(name, Liveness.ABSENT)
        fixed, reason = liveness in (Liveness.ABSENT, Liveness.RESTART), self.reasons.get(name)
        if fixed and reason:
            return f"{name}: {liveness.value} in this trainer: {reason}"
        if name == "centering" and value and not self.sampler_head:  # also why it is absent, where it is
            return "centering: the rollouts record no sampler head (top log-probs), which score centering needs"
        if fixed:
            return f"{name}: {liveness.value} in this trainer"
        if name == "importance" and value != "none" and not self.rollout_logprobs:
            return "importance: the rollouts record no sampler log-probs"
        if name == "clip_mode" and value == "calibrated" and not self.shadow:
            return "clip_mode: calibrated bounds need the BF16 twin or a calibration, and this trainer has neither"
        formats = {"sampler_format": self.sampler_formats, "train_format": self.train_formats}.get(name)
        if formats is not None and value not in formats:
            return f"{name}: {value!r} is none of {', '.join(formats) or 'no format (none can be switched to)'}"
        if name in CHECKPOINTS and value and value not in self.checkpoints:
            return f"{name}: there is no checkpoint {value!r}; there are {', '.join(self.checkpoints) or 'none'}"
        return None
