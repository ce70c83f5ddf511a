"""Checkpoints that a run continues from bit for bit (on a CPU, with one thread)."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import torch

from trimtab.hooks.calibration import ClipCalibration, Displacement, RecentTokens
from trimtab.trainer.grpo import GRPOTrainer

VERSION = 2
FREE_TO_CHANGE = ("steps", "checkpoint", "evaluation")
"""Fields of the configuration that no step depends on."""


class CheckpointError(ValueError):
    """A checkpoint that this run cannot continue from; the message says which and why."""


def save_checkpoint(trainer: GRPOTrainer, path: Path) -> None:
    """Write everything that the next step depends on; atomic, so a killed run never leaves half a file."""
    state = {
        "version": VERSION,
        "job": trainer.emitter.job,
        "config": trainer.config.model_dump_json(),
        "step": trainer.step_index,
        "attempt": trainer.emitter.attempt,
        "overrides": dict(trainer.emitter.overrides),
        "generation": trainer.emitter.generation,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "history": list(trainer.history),
        "calibration": dataclasses.asdict(trainer.calibration),
        "data_rng": trainer.data.get_state(),
        "sampling_rng": trainer.sampling.get_state(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    torch.save(state, partial)
    partial.replace(path)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's content.

    Raises:
        CheckpointError: there is none, the file cannot be read, or another version wrote it.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: there is no checkpoint to go on from; start the run without --resume")
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:
        raise CheckpointError(f"{path}: cannot be read as a checkpoint ({error})") from error
    if state.get("version") != VERSION:
        raise CheckpointError(f"{path}: version {state.get('version')}, but this trainer reads version {VERSION}")
    return state


def restore(trainer: GRPOTrainer, state: dict[str, Any]) -> None:
    """Put `trainer` where the checkpoint was taken; its next step is the one that would have followed.

    Raises:
        CheckpointError: another job wrote the checkpoint, or this one with another configuration, in which the fields
            of `FREE_TO_CHANGE` do not count; the message names what differs.
    """
    if state["job"] != trainer.emitter.job:
        raise CheckpointError(
            f"checkpoint: of job {state['job']!r}, but this is {trainer.emitter.job!r}; give it its own --out"
        )
    written = type(trainer.config).model_validate_json(state["config"])
    differing = [
        name
        for name in type(trainer.config).model_fields
        if name not in FREE_TO_CHANGE and getattr(written, name) != getattr(trainer.config, name)
    ]
    if differing:
        told = "; ".join(f"{name} was {getattr(written, name)}" for name in differing)
        raise CheckpointError(f"checkpoint: written with another configuration ({told}); resume with the same one")
    trainer.step_index = state["step"]
    trainer.model.load_state_dict(state["model"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.history.clear()
    trainer.history.extend(state["history"])
    trainer.calibration = _calibration(state["calibration"])
    trainer.data.set_state(state["data_rng"])
    trainer.sampling.set_state(state["sampling_rng"])
    trainer.emitter.resume(
        base=trainer.config.controls_at(trainer.step_index),
        overrides=state["overrides"],
        generation=state["generation"],
    )


def _calibration(saved: dict[str, dict[str, dict[str, Any]]]) -> ClipCalibration:
    """The inverse of `dataclasses.asdict`."""
    return ClipCalibration(
        **{
            sign: Displacement(**{ratio: RecentTokens(**tokens) for ratio, tokens in displacement.items()})
            for sign, displacement in saved.items()
        }
    )
