"""The copies of a model that one run computes with, and what they let it change while it runs."""

from __future__ import annotations

import copy

from torch import nn

from trimtab.hooks.controls import CONTROL_NAMES, Capabilities, Liveness
from trimtab.trainer.config import ConfigError, RunConfig
from trimtab.trainer.quant import FORMATS, Recipe, convert, fitting_formats, outlier_scales

TWIN_FORMAT = "bf16"


def check_fits(config: RunConfig, model: nn.Module) -> None:
    """Refuse, before step 0, what this model cannot do: as the run starts, and as its schedule changes it.

    Raises:
        ConfigError: a format that is unknown or does not divide into the model's layers, a layer name that matches
            nothing, a control that this configuration leaves without what it needs. The message names the field.
    """
    try:
        can = capabilities(config, model)
    except ValueError as error:  # told with the name of a parameter, which is the last part of the field's
        section = "model" if str(error).startswith("keep:") else "outliers"
        raise ConfigError(f"{section}.{error}") from error
    for step in sorted({0, *(change.step for change in config.schedule)}):
        controls = config.controls_at(step)
        for name in ("sampler_format", "train_format"):
            value = getattr(controls, name)
            if value not in FORMATS:
                raise ConfigError(f"controls.{name}: {value!r} is none of {', '.join(FORMATS)} (at step {step})")
            try:
                converted(model, config, value)
            except ValueError as error:
                raise ConfigError(f"controls.{name}: {value!r}: {error} (at step {step})") from error
        for name in CONTROL_NAMES:
            refusal = can.refusal(name, getattr(controls, name))
            if refusal is not None:
                raise ConfigError(f"controls.{refusal} (at step {step})")


def converted(model: nn.Module, config: RunConfig, number_format: str) -> nn.Module:
    """A copy of `model` that computes in `number_format`, with the configured outliers."""
    engine = copy.deepcopy(model)
    recipe = Recipe(name=number_format, format=number_format, backward=config.update.backward, keep=config.model.keep)
    convert(engine, recipe)
    outliers = config.outliers
    if outliers.channels:
        outlier_scales(engine, outliers.layers, channels=outliers.channels, scale=outliers.scale, seed=outliers.seed)
    return engine


def capabilities(config: RunConfig, model: nn.Module) -> Capabilities:
    """What this trainer can do with `model` while it runs, as it is configured."""
    liveness = dict.fromkeys(CONTROL_NAMES, Liveness.LIVE)
    liveness["sampler_format"] = Liveness.NEXT_ROLLOUT
    formats = fitting_formats(converted(model, config, TWIN_FORMAT))
    return Capabilities(
        controls=liveness,
        rollout_logprobs=True,
        sampler_head=config.rollout.head,
        shadow=config.shadow.every > 0,
        sampler_formats=formats,
        train_formats=formats,
    )
