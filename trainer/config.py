"""The typed configuration of a run: TOML, then command-line overrides, checked before step 0.

What may change while the run goes is in `Controls`; the rest is in `trimtab.trainer.sections`. A run may name an
algorithm and a precision recipe: each stands for controls, which the file's own `[controls]` go over.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from trimtab.hooks.controls import ControlError, Controls, no_such_control
from trimtab.trainer.algorithms import ALGORITHMS
from trimtab.trainer.quant import RECIPES
from trimtab.trainer.sampler_sections import SamplerConfig, TorchSamplerConfig
from trimtab.trainer.section import Section, Seed, mistakes, told
from trimtab.trainer.sections import (
    KINDS,
    AsynchronyConfig,
    CheckpointConfig,
    DecoderConfig,
    EvalConfig,
    ModelConfig,
    OutlierConfig,
    PauseConfig,
    RolloutConfig,
    RunningSumConfig,
    ScheduledChange,
    ShadowConfig,
    TaskConfig,
    UpdateConfig,
    WarmStartConfig,
)

T = TypeVar("T")


class ConfigError(ValueError):
    """A configuration that cannot run; the message names every field, its value and what is allowed."""


class RunConfig(Section):
    """One run, whole.

    >>> RunConfig(steps=10).controls.clip_low
    0.2
    """

    seed: Seed = 0
    steps: int = Field(default=110, ge=1)
    algorithm: str | None = None
    """Preset of the objective's controls; see `trimtab.trainer.algorithms`."""
    recipe: str | None = None
    """Preset of the precision: what is quantised, how, and how the gradients go back; see `trimtab.trainer.quant`."""
    task: TaskConfig = RunningSumConfig()
    model: ModelConfig = DecoderConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    outliers: OutlierConfig = OutlierConfig()
    rollout: RolloutConfig = RolloutConfig()
    sampler: SamplerConfig = TorchSamplerConfig()
    asynchrony: AsynchronyConfig = AsynchronyConfig()
    update: UpdateConfig = UpdateConfig()
    shadow: ShadowConfig = ShadowConfig()
    evaluation: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    pause: PauseConfig = PauseConfig()
    controls: Controls = Controls(ratio_reference="sampler")
    schedule: tuple[ScheduledChange, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _presets(cls, data: Any) -> Any:
        """Write what the presets stand for into the controls, under what is said there."""
        if not isinstance(data, dict):
            return data
        if isinstance(data.get("controls"), Controls):
            for preset in ("algorithm", "recipe"):
                if data.get(preset) is not None:
                    raise ValueError(
                        f"{preset}: {data[preset]!r} would change nothing, since a Controls object says everything; "
                        "give the controls that differ as a dict"
                    )
            return data
        controls: dict[str, Any] = {"ratio_reference": "sampler"}
        if (algorithm := data.get("algorithm")) is not None:
            controls |= _named("algorithm", algorithm, ALGORITHMS)
        if (recipe := data.get("recipe")) is not None:
            chosen = _named("recipe", recipe, RECIPES)
            controls |= dict.fromkeys(("sampler_format", "train_format"), chosen.format)
            controls["backward"] = chosen.backward
        given = data.get("controls", {})
        return {**data, "controls": {**controls, **given} if isinstance(given, dict) else given}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        controls = self.controls
        for change in self.schedule:
            if change.step >= self.steps:
                raise ValueError(f"schedule: step {change.step} is not before the end, steps = {self.steps}")
            try:
                controls = controls.overlaid(change.controls)
            except ControlError as error:
                raise ValueError(f"schedule: at step {change.step}, {error}") from error
        if self.controls.paused or controls.paused:
            raise ValueError("controls.paused: a run does not pause itself; its agent or a person does, by an override")
        if self.update.minibatches > self.rollout.prompts:
            raise ValueError(
                f"update.minibatches: {self.update.minibatches} is more than rollout.prompts = {self.rollout.prompts}"
            )
        if self.asynchrony.mode != "off" and self.rollout.lag:
            raise ValueError(
                f"rollout.lag: {self.rollout.lag} fixes the age of the sampler's weights, and asynchrony.mode = "
                f"{self.asynchrony.mode!r} bounds it by asynchrony.max_staleness; give one of them"
            )
        if isinstance(self.model, DecoderConfig) and not isinstance(self.task, RunningSumConfig):
            raise ValueError(
                f"task.kind: {self.task.kind!r} is asked in text, and the embedded decoder has the tokens of its own "
                "task only; set model.kind to huggingface or smollm2"
            )
        if not isinstance(self.sampler, TorchSamplerConfig):
            self._check_engine(self.sampler.kind)
        if isinstance(self.model, DecoderConfig) and self.outliers.channels > self.model.width:
            raise ValueError(
                f"outliers.channels: {self.outliers.channels} is more than model.width = {self.model.width}"
            )
        return self

    def _check_engine(self, kind: str) -> None:
        """Refuse what a serving engine cannot sample."""
        if isinstance(self.model, DecoderConfig):
            raise ValueError(
                f"sampler.kind: {kind!r} serves Hugging Face models, and model.kind is 'decoder'; use sampler.kind = "
                "'torch', or set model.kind to huggingface or smollm2"
            )
        if self.outliers.channels:
            raise ValueError(
                f"outliers.channels: {self.outliers.channels} are injected in the trainer's own sampler only; use "
                f"sampler.kind = 'torch' instead of {kind!r}, or 0"
            )

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
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
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
        for problem in mistakes(error):
            if problem["type"] == "unexpected_keyword_argument":  # of the controls, which alone are no section
                lines.append(f"controls.{no_such_control(str(problem['loc'][-1]))}")
            else:
                lines.append(told(problem, KINDS))
        raise ConfigError("\n".join(lines)) from error
    except ControlError as error:
        raise ConfigError(f"controls: {error}") from error


def _named(field: str, name: Any, presets: Mapping[str, T]) -> T:
    if not isinstance(name, str) or name not in presets:
        raise ValueError(f"{field}: {name!r} is none of {', '.join(presets)}")
    return presets[name]


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
