"""The copies of a model that one run computes with, and what they let it change while it runs."""

from __future__ import annotations

import copy

from torch import nn

from trimtab.hooks.controls import CONTROL_NAMES, Capabilities, Liveness
from trimtab.trainer.config import RunConfig
from trimtab.trainer.quant import convert, fitting_formats, outlier_scales

TWIN_FORMAT = "bf16"


def converted(model: nn.Module, config: RunConfig, number_format: str) -> nn.Module:
    """A copy of `model` that computes in `number_format`, with the configured outliers."""
    engine = copy.deepcopy(model)
    convert(engine, number_format, backward=config.update.backward, keep=config.model.keep)
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
