"""The copies of a model that one run computes with, and what they let it change while it runs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from torch import nn

from trimtab.hooks.contract import TensorContract, contract_differences, report
from trimtab.hooks.controls import CONTROL_NAMES, Capabilities, Controls, Liveness
from trimtab.trainer.config import ConfigError, RunConfig
from trimtab.trainer.quant import (
    FORMATS,
    Recipe,
    convert,
    engine_of,
    fitting_formats,
    manifest,
    outlier_scales,
    recipe_named,
    set_execution,
    set_format,
)
from trimtab.trainer.quant.anatomy import decoder_layers
from trimtab.trainer.sampler_sections import TorchSamplerConfig
from trimtab.trainer.tasks.task import Task

TWIN_FORMAT = "bf16"
_KEEPING = ("keep_head", "keep_attention", "keep_shared_experts", "keep_last", "moe_only")
"""What a recipe keeps, and a run's model section may say otherwise."""


def check_fits(config: RunConfig, model: nn.Module) -> nn.Module:
    """Refuse, before step 0, what this model cannot do: as the run starts, and as its schedule changes it.

    Returns:
        The copy that was checked, which computes in `TWIN_FORMAT`: large models are not copied for a check alone.

    Raises:
        ConfigError: a format that is unknown or does not divide into the model's layers, a layer name that matches
            nothing, a control that this configuration leaves without what it needs. The message names the field.
    """
    try:
        engine = converted(model, config, TWIN_FORMAT)
    except ValueError as error:  # told with the name of a parameter, which is the last part of the field's
        raise ConfigError(f"{_section(str(error))}{error}") from error
    can = _capabilities(config, engine)
    for step in sorted({0, *(change.step for change in config.schedule)}):
        controls = config.controls_at(step)
        for name in ("sampler_format", "train_format"):
            value = getattr(controls, name)
            if value not in FORMATS:
                raise ConfigError(f"controls.{name}: {value!r} is none of {', '.join(FORMATS)} (at step {step})")
            try:
                set_format(engine, value)
                engine_of(engine)
            except ValueError as error:
                layer, _, native = str(error).partition(": execution: ")
                told = f"controls.{name}: {value!r}: {error}"
                if native:  # the format could be had, but not as it is to be executed
                    told = f"model.execution: {native}; asked for by controls.{name} = {value!r}, in {layer}"
                raise ConfigError(f"{told} (at step {step})") from error
        for name in CONTROL_NAMES:
            value = getattr(controls, name)
            given = {Liveness.RESTART: config.controls_at(0), Liveness.ABSENT: Controls()}.get(can.controls[name])
            if given is not None and value == getattr(given, name):
                continue  # it starts so, or does without
            refusal = can.refusal(name, value)
            if refusal is not None:
                raise ConfigError(f"controls.{refusal} (at step {step})")
        conflict = controls.conflict()
        if conflict is not None:
            raise ConfigError(f"controls.{conflict[1]} (at step {step})")
    set_format(engine, TWIN_FORMAT)
    return engine


def check_task(config: RunConfig, task: Task) -> None:
    """Refuse, before step 0, what a task's responses are too short for.

    Raises:
        ConfigError: an overlong buffer that is longer than a response, which no penalty could be switched on with.
    """
    if config.rollout.overlong_buffer > task.response_length:
        raise ConfigError(
            f"rollout.overlong_buffer: {config.rollout.overlong_buffer} tokens is more than a response of this task "
            f"can have, {task.response_length}; give at most that, or 0 for an eighth of it"
        )


def converted(model: nn.Module, config: RunConfig, number_format: str) -> nn.Module:
    """A copy of `model` that computes in `number_format` what the run's recipe quantises, with the configured outliers.

    Raises:
        ValueError: the recipe or the outliers do not fit the model.
    """
    engine = copy.deepcopy(model)
    recipe = Recipe(name="own", format=number_format) if config.recipe is None else recipe_named(config.recipe)
    given = {name: value for name in _KEEPING if (value := getattr(config.model, name)) is not None}
    recipe = replace(recipe, **given, keep=(*recipe.keep, *config.model.keep))
    convert(engine, replace(recipe, format=number_format, backward=config.controls.backward))
    set_execution(engine, config.model.execution)
    outliers = config.outliers
    if outliers.channels:
        outlier_scales(engine, outliers.layers, channels=outliers.channels, scale=outliers.scale, seed=outliers.seed)
    return engine


def capabilities(config: RunConfig, model: nn.Module) -> Capabilities:
    """What this trainer can do with `model` while it runs, as it is configured."""
    return _capabilities(config, converted(model, config, TWIN_FORMAT))


def contract_of(trainer: nn.Module, theirs: Mapping[str, TensorContract]) -> dict[str, Any]:
    """What a converted model and its sampler compute each weight in, and every weight in which they differ."""
    ours = manifest(trainer)
    differences = contract_differences(ours, theirs)
    return {
        "report": report(differences),
        "differences": [asdict(difference) for difference in differences],
        "trainer": {name: asdict(contract) for name, contract in ours.items()},
        "sampler": {name: asdict(contract) for name, contract in theirs.items()},
    }


def _capabilities(config: RunConfig, engine: nn.Module) -> Capabilities:
    liveness = dict.fromkeys(CONTROL_NAMES, Liveness.LIVE)
    for name in ("sampler_format", "kv_format", "dynamic_sampling", "max_staleness"):
        liveness[name] = Liveness.NEXT_ROLLOUT
    if not isinstance(config.sampler, TorchSamplerConfig):
        liveness["kv_format"] = Liveness.RESTART  # a serving engine lays its cache out when it starts
    if not config.rollout.head:
        liveness["centering"] = Liveness.ABSENT
    if not config.checkpoint.every:
        liveness["pin"] = Liveness.ABSENT
    if not decoder_layers(engine):
        liveness["bf16_last"] = Liveness.ABSENT
    formats = fitting_formats(engine)
    return Capabilities(
        controls=liveness,
        rollout_logprobs=True,
        sampler_head=config.rollout.head,
        shadow=config.shadow.every > 0 or config.shadow.calibration is not None,
        sampler_formats=formats,
        train_formats=formats,
    )


def _section(problem: str) -> str:
    """Where in the configuration the field is that a problem starts with."""
    field = problem.partition(":")[0]
    sections = {
        **dict.fromkeys(("keep", "execution", *_KEEPING), "model."),
        "layers": "outliers.",
        "channels": "outliers.",
    }
    return sections.get(field, "")
