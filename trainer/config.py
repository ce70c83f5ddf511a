"""The typed configuration of a run: TOML, then command-line overrides, checked before step 0.

Unknown keys and values out of range are refused with the field named. What may change while the run goes is in
`Controls`; this is the rest, and the controls' values at the start.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimtab.hooks.controls import ControlError, Controls


class ConfigError(ValueError):
    """A configuration that cannot run; the message names every field, its value and what is allowed."""


class Section(BaseModel):
    """A table of the TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class TaskConfig(Section):
    """The verifiable task."""

    digits: int = Field(default=8, ge=1, le=64)
    """Digits to add up."""


class ModelConfig(Section):
    """Sizes of the embedded model."""

    width: int = Field(default=64, ge=8)
    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=4, ge=1)
    hidden: int = Field(default=256, ge=8)
    keep: tuple[str, ...] = ("head",)
    """Linear layers, by name or glob, that compute in BF16 whatever the format; embeddings and norms always do."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} is not divisible by heads = {self.heads}")
        return self


class WarmStartConfig(Section):
    """Supervised start on chains with random slips, so that the policy knows the method and is often wrong."""

    steps: int = Field(default=1200, ge=0)
    batch: int = Field(default=128, ge=1)
    lr: float = Field(default=3e-3, gt=0)
    error_rate: float = Field(default=0.08, ge=0, le=1)
    seed: int = Field(default=0, ge=0)


class OutlierConfig(Section):
    """Activation outliers as in real LLMs, function-preserving: some channels are scaled up before the activation
    quantiser and their weight columns down before the weight quantiser, both undone after. Without a quantiser nothing
    changes."""

    channels: int = Field(default=0, ge=0)
    """Channels scaled in front of each of the layers; 0 scales none."""
    scale: float = Field(default=16.0, gt=0)
    """A power of two, so that scaling itself never rounds."""
    seed: int = Field(default=0, ge=0)
    layers: tuple[str, ...] = ("*.qkv", "*.up")
    """Linear layers, by name or glob, whose input channels are scaled."""

    @model_validator(mode="after")
    def _power_of_two(self) -> Self:
        if self.scale.hex().split("p")[0] != "0x1.0000000000000":
            raise ValueError(f"scale: {self.scale} is not a power of two")
        return self


class RolloutConfig(Section):
    """How responses are sampled."""

    prompts: int = Field(default=24, ge=1)
    """Prompts a step."""
    group_size: int = Field(default=8, ge=2)
    """Responses a prompt: the group that the advantage is relative to."""
    lag: int = Field(default=0, ge=0)
    """Bounded staleness: the sampler's weights are this many steps old."""
    head: int = Field(default=8, ge=0, le=128)
    """Top log-probs recorded for each token; 0 records none, and score centering is refused."""
    temperature: float = Field(default=1.0, gt=0)


class UpdateConfig(Section):
    """GRPO's update."""

    lr: float = Field(default=5e-4, gt=0)
    minibatches: int = Field(default=2, ge=1)
    """Optimizer updates a pass over the rollouts."""
    passes: int = Field(default=1, ge=1)
    """Passes over the rollouts."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest gradient norm."""
    backward: Literal["dequantized", "high_precision"] = "dequantized"
    """What the backward pass multiplies by: the operands that the forward pass saw, or the unquantised ones."""


class ShadowConfig(Section):
    """The BF16 twin of the ratio."""

    every: int = Field(default=1, ge=0)
    """Steps between twins; 0 computes none, and calibrated clipping is refused."""


class EvalConfig(Section):
    """Evaluation of the trained policy at the end."""

    prompts: int = Field(default=384, ge=0)
    seed: int = Field(default=77, ge=0)


class CheckpointConfig(Section):
    """Checkpoints that a run restarts from."""

    every: int = Field(default=10, ge=0)
    """Steps between checkpoints; 0 writes none but the last."""


class ScheduledChange(Section):
    """A change that the run itself makes to its controls at the start of a step."""

    step: int = Field(ge=0)
    controls: dict[str, bool | float | str]


class RunConfig(Section):
    """One run, whole.

    >>> RunConfig(steps=10).controls.clip_low
    0.2
    """

    seed: int = Field(default=0, ge=0)
    steps: int = Field(default=110, ge=1)
    task: TaskConfig = TaskConfig()
    model: ModelConfig = ModelConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    outliers: OutlierConfig = OutlierConfig()
    rollout: RolloutConfig = RolloutConfig()
    update: UpdateConfig = UpdateConfig()
    shadow: ShadowConfig = ShadowConfig()
    evaluation: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    controls: Controls = Controls(ratio_reference="sampler")
    schedule: tuple[ScheduledChange, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        controls = self.controls
        for change in self.schedule:
            if change.step >= self.steps:
                raise ValueError(f"schedule: step {change.step} is not before the end, steps = {self.steps}")
            controls = controls.overlaid(change.controls)
        if self.update.minibatches > self.rollout.prompts:
            raise ValueError(
                f"update.minibatches: {self.update.minibatches} is more than rollout.prompts = {self.rollout.prompts}"
            )
        if self.outliers.channels > self.model.width:
            raise ValueError(
                f"outliers.channels: {self.outliers.channels} is more than model.width = {self.model.width}"
            )
        return self

    def controls_at(self, step: int) -> Controls:
        """The run's own controls at `step`: the start's, then every scheduled change up to it."""
        controls = self.controls
        for change in sorted(self.schedule, key=lambda change: change.step):
            if change.step <= step:
                controls = controls.overlaid(change.controls)
        return controls


def load_config(path: Path | None = None, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a run's configuration.

    Args:
        path: TOML file; None starts from the defaults.
        overrides: `section.key=value`, the value as in TOML (a bare word is a string).

    Raises:
        ConfigError: a file that cannot be read, an unknown key, a value out of range.
    """
    data: dict[str, Any] = {}
    if path is not None:
        try:
            data = tomllib.loads(path.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key:
            raise ConfigError(f"{override!r}: write an override as section.key=value")
        _set(data, key.strip().split("."), _parse(value.strip()))
    return validated(data)


def validated(data: dict[str, Any]) -> RunConfig:
    """`RunConfig` from plain data, with errors as `ConfigError`."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            field = ".".join(str(part) for part in problem["loc"])
            message = problem["msg"].removeprefix("Value error, ")
            given = f" (given {problem['input']!r})" if field else ""
            lines.append(f"{field}: {message}{given}" if field else message)
        raise ConfigError("\n".join(lines)) from error
    except ControlError as error:
        raise ConfigError(f"controls: {error}") from error


def _parse(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _set(data: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            raise ConfigError(f"{'.'.join(path)}: {part} is a value, not a section")
    data[path[-1]] = value
