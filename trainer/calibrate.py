"""Calibrate one number format offline: a few steps of a run in it, with the BF16 twin in every one.

What is learnt belongs to the model, task, formats, ratio and staleness that it was learnt of, and is refused by any
other run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trimtab.hooks.calibration import ClipCalibration
from trimtab.hooks.calibration_file import CalibrationError, FormatCalibration, read_calibration
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.records import StepSummary
from trimtab.hooks.transport.memory import MemoryTransport
from trimtab.trainer.build import build
from trimtab.trainer.config import ConfigError, RunConfig
from trimtab.trainer.engines import capabilities
from trimtab.trainer.grpo import GRPOTrainer
from trimtab.trainer.sections import ShadowConfig
from trimtab.trainer.step_record import StepRecord
from trimtab.trainer.warm_start import Progress

SETUP = ("task", "model", "warm_start", "outliers")
"""Tables of a run that its noise depends on, beside the formats."""
STALENESS = {
    "rollout": {"temperature", "lag"},
    "asynchrony": {"mode", "max_staleness", "sync_every"},
    "update": {"minibatches", "passes"},
}
"""Fields of other tables that the ratio depends on: what is sampled from, and how far the policy has moved since."""
CONTROLS = ("sampler_format", "train_format", "kv_format", "ratio_reference", "objective")
"""Controls that it is told for."""
NO_MATTER = ("device", "execution", "weights", "gradient_checkpointing")
"""Fields of the model that say how it is computed, and not what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What the steps taught."""

    config: RunConfig
    """As it was run."""
    clip: ClipCalibration
    summaries: tuple[StepSummary, ...]
    """Of each step, with the sketches of the ratio and of its twin."""


def calibrate(
    config: RunConfig,
    number_format: str,
    steps: int,
    *,
    on_warm_start: Progress | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
) -> Calibrated:
    """Run the start of `config` with rollouts in `number_format`, under its own objective and nominal clip bounds.

    Raises:
        ConfigError: the format does not fit, or the configuration cannot run.
    """
    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    controls = replace(config.controls, sampler_format=number_format, clip_mode="nominal")
    config = config.model_copy(
        update={"steps": steps, "controls": controls, "schedule": (), "shadow": ShadowConfig(every=1)}
    )
    model, task = build(config, on_warm_start)
    transport = MemoryTransport()
    can = capabilities(config, model)
    with (
        Emitter(transport, job="calibrate", attempt=0, controls=controls, capabilities=can) as emitter,
        closing(GRPOTrainer(config, emitter, model, task)) as trainer,
    ):
        for record in trainer.run():
            if on_step is not None:
                on_step(record)
        clip = trainer.twin.calibration
    return Calibrated(config=config, clip=clip, summaries=tuple(transport.sent))


def setup_of(config: RunConfig) -> dict[str, Any]:
    """What a calibration of the run belongs to."""
    setup = config.model_dump(mode="json", include=set(SETUP))
    setup["model"] = {name: value for name, value in setup["model"].items() if name not in NO_MATTER}
    return setup | config.model_dump(mode="json", include=STALENESS)


def clip_calibration(config: RunConfig) -> ClipCalibration:
    """What the run's calibrated clipping starts from: its calibration file, or nothing yet.

    Raises:
        ConfigError: the file is no calibration, or is one of another format or model; the message names the field.
    """
    path = config.shadow.calibration
    if path is None:
        return ClipCalibration()
    try:
        calibration = read_calibration(path)
    except CalibrationError as error:
        raise ConfigError(f"shadow.calibration: {error}") from error
    _check_controls(config, calibration, path)
    difference = _difference(calibration.setup, setup_of(config))
    if difference is not None:
        field, theirs, ours = difference
        raise ConfigError(
            f"shadow.calibration: {path}: {field}: {theirs!r} there, and {ours!r} in this run; calibrate this one"
        )
    return calibration.clip


def _check_controls(config: RunConfig, calibration: FormatCalibration, path: Path) -> None:
    """Refuse a calibration of controls that the run never has together, by itself."""
    states = [config.controls_at(step) for step in (0, *(change.step for change in config.schedule))]
    for field in CONTROLS:
        theirs = getattr(calibration, field)
        ours = list(dict.fromkeys(getattr(controls, field) for controls in states))
        states = [controls for controls in states if getattr(controls, field) == theirs]
        if not states:
            raise ConfigError(
                f"shadow.calibration: {path}: {field}: {theirs!r} there, and {' and '.join(ours)} in this run; "
                "calibrate that one"
            )


def _difference(theirs: Mapping[str, Any], ours: Mapping[str, Any], prefix: str = "") -> tuple[str, Any, Any] | None:
    """The first field in which two set-ups differ, and its values."""
    for name in dict.fromkeys((*ours, *theirs)):
        here, there = ours.get(name), theirs.get(name)
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            inner = _difference(there, here, f"{prefix}{name}.")
            if inner is not None:
                return inner
        elif here != there:
            return f"{prefix}{name}", there, here
    return None
