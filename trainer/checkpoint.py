"""Checkpoints that a run continues from bit for bit (on a CPU, with one thread), or goes back to.

One file a checkpoint, `ATTEMPT-STEP.pt`: a restore begins a new attempt, so that step numbers come again.
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trimtab.hooks.calibration import restored_calibration
from trimtab.trainer.config import RunConfig
from trimtab.trainer.grpo import GRPOTrainer

VERSION = 6
FREE_TO_CHANGE = ("steps", "checkpoint", "evaluation", "pause")
"""Fields of the configuration that no step depends on."""
_FILE = re.compile(r"(\d+)-(\d+)\.pt")


class CheckpointError(ValueError):
    """A checkpoint that this run cannot continue from; the message says which and why."""


class Checkpoints:
    """A run's checkpoints, in one folder.

    Args:
        folder: made when the first checkpoint is saved.
        keep: how many stay; older ones are removed, but for the one that the control `pin` names.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep

    def names(self) -> tuple[str, ...]:
        """Those on disk as `ATTEMPT:STEP`, oldest first."""
        found = (_FILE.fullmatch(path.name) for path in self.folder.glob("*.pt"))
        pairs = sorted((int(match[1]), int(match[2])) for match in found if match)
        return tuple(f"{attempt}:{step}" for attempt, step in pairs)

    def path(self, name: str) -> Path:
        """File of the checkpoint `ATTEMPT:STEP`."""
        return self.folder / f"{name.replace(':', '-')}.pt"

    def save(self, trainer: GRPOTrainer) -> None:
        """Write everything that the next step depends on; atomic, so a killed run never leaves half a file.

        All processes of the run call it; the first writes, and the others wait until the file is there.
        """
        state = _state(trainer)
        if trainer.world.first:
            self._write(trainer, state)
        trainer.world.wait()

    def _write(self, trainer: GRPOTrainer, state: dict[str, Any]) -> None:
        path = self.path(f"{trainer.emitter.attempt}:{trainer.step_index}")
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        torch.save(state, partial)
        partial.replace(path)
        for name in self.names()[: -self.keep]:
            if name != trainer.emitter.controls.pin:
                self.path(name).unlink()
        self._sweep()

    def read(self, name: str) -> dict[str, Any]:
        """A checkpoint's content.

        Raises:
            CheckpointError: there is none, the file cannot be read, or another version wrote it.
        """
        path = self.path(name)
        if not path.exists():
            raise CheckpointError(f"{path}: there is no such checkpoint; there are {', '.join(self.names()) or 'none'}")
        try:
            file = path.open("rb")
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
        with file:
            try:
                state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
            except (
                Exception
            ) as error:  # what torch raises says little: an empty file is an EOFError, a cut one an errno
                others = [other for other in self.names() if other != name]
                rest = f"the newest of the others, {others[-1]}, is used" if others else "start without --resume"
                raise CheckpointError(
                    f"{path}: is damaged, and cannot be read as a checkpoint ({type(error).__name__}: {error}); "
                    f"remove it, and {rest}"
                ) from error
        if state.get("version") != VERSION:
            raise CheckpointError(f"{path}: version {state.get('version')}, but this trainer reads version {VERSION}")
        return state

    def newest(self) -> dict[str, Any]:
        """Content of the newest checkpoint.

        Raises:
            CheckpointError: as for `read`.
        """
        names = self.names()
        if not names:
            raise CheckpointError(
                f"{self.folder}: there is no checkpoint to go on from; start the run without --resume"
            )
        return self.read(names[-1])

    def clear(self) -> None:
        """Remove them all."""
        for name in self.names():
            self.path(name).unlink()
        self._sweep()

    def _sweep(self) -> None:
        """Remove what processes that were killed while they wrote have left."""
        for partial in self.folder.glob("*.partial"):
            partial.unlink(missing_ok=True)


def check_same_run(trainer: GRPOTrainer, state: dict[str, Any]) -> None:
    """Refuse a checkpoint that is not of this run.

    Raises:
        CheckpointError: another job wrote the checkpoint, or another model, or this job with another configuration, in
            which the fields of `FREE_TO_CHANGE` do not count; the message names what differs.
    """
    if state["job"] != trainer.emitter.job:
        raise CheckpointError(
            f"checkpoint: of job {state['job']!r}, but this is {trainer.emitter.job!r}; give it its own --out"
        )
    written = type(trainer.config).model_validate_json(state["config"])
    then, now = (config.model_dump(exclude=set(FREE_TO_CHANGE)) for config in (written, trainer.config))
    differing = _differences(then, now)
    if differing:
        told = "; ".join(differing)
        raise CheckpointError(f"checkpoint: written with another configuration ({told}); resume with the same one")
    _check_same_model(trainer.learner.model.state_dict(), state["model"])  # parts of it know the shape of the whole


def check_steps(config: RunConfig, state: dict[str, Any]) -> None:
    """Refuse to go on to a step that the checkpoint is beyond.

    Raises:
        CheckpointError: fewer steps are asked for than are done.
    """
    if config.steps < state["step"]:
        raise CheckpointError(
            f"steps: {config.steps} is fewer than the {state['step']} that the newest checkpoint has done already; "
            f"give at least {state['step']}"
        )


def restore(trainer: GRPOTrainer, state: dict[str, Any]) -> None:
    """Put `trainer` where the checkpoint was taken, weights and random numbers and all; its controls stay.

    Raises:
        CheckpointError: as for `check_same_run`.
    """
    check_same_run(trainer, state)
    trainer.step_index = state["step"]
    trainer.learner.restore(state)
    trainer.published.restore(state["published"])
    trainer.twin.calibration = restored_calibration(state["calibration"])
    trainer.supply.restore(state["supply"])
    _restore_rounding(trainer, state["rounding_rng"])


def resume_run(trainer: GRPOTrainer, state: dict[str, Any]) -> None:
    """Restore, and take up the controls of then: the next step is the one that would have followed.

    Raises:
        CheckpointError: as for `restore`.
    """
    restore(trainer, state)
    trainer.restored = state["restored"]
    trainer.emitter.resume(
        base=trainer.config.controls_at(trainer.step_index),
        overrides=state["overrides"],
        generation=state["generation"],
    )


def _state(trainer: GRPOTrainer) -> dict[str, Any]:
    return {
        "version": VERSION,
        "job": trainer.emitter.job,
        "config": trainer.config.model_dump_json(),
        "step": trainer.step_index,
        "attempt": trainer.emitter.attempt,
        "overrides": dict(trainer.emitter.overrides),
        "generation": trainer.emitter.generation,
        "restored": trainer.restored,
        **trainer.learner.state(),
        "published": trainer.published.state(),
        "calibration": dataclasses.asdict(trainer.twin.calibration),
        "supply": trainer.supply.state(),
        "rounding_rng": trainer.world.gathered(_rounding(trainer)),
    }


def _rounding(trainer: GRPOTrainer) -> dict[str, Tensor]:
    """The generators that rounding at random draws from, by device."""
    states = {"cpu": torch.get_rng_state()}
    if trainer.learner.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(trainer.learner.device)
    return states


def _restore_rounding(trainer: GRPOTrainer, states: list[dict[str, Tensor]]) -> None:
    """Go on with these; a process, or a device, that the checkpoint does not know begins with its own."""
    rank = trainer.world.rank
    trainer.world.seed_rounding(trainer.config.seed, trainer.step_index)
    known = states[rank] if rank < len(states) else {}
    if "cpu" in known:
        torch.set_rng_state(known["cpu"])
    if "cuda" in known and trainer.learner.device.type == "cuda":
        torch.cuda.set_rng_state(known["cuda"], trainer.learner.device)


def _differences(written: dict[str, Any], mine: dict[str, Any], section: str = "") -> list[str]:
    """One line for each value that is not the same in both."""
    found = []
    for name in dict.fromkeys((*written, *mine)):
        then, now = written.get(name), mine.get(name)
        if isinstance(then, dict) and isinstance(now, dict):
            found += _differences(then, now, f"{section}{name}.")
        elif then != now:
            found.append(f"{section}{name}: {then!r} in the checkpoint, {now!r} now")
    return found


def _check_same_model(mine: dict[str, Tensor], written: dict[str, Tensor]) -> None:
    for name in sorted({*mine, *written}):
        sizes = [list(weights[name].shape) if name in weights else None for weights in (written, mine)]
        if sizes[0] != sizes[1]:
            raise CheckpointError(
                f"checkpoint: of another model: {name} is {sizes[0] or 'absent'} there and {sizes[1] or 'absent'} here"
            )
