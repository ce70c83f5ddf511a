"""What can be found in a running process, and who attaches to it: one line a framework."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework whose trainer is found by its class, on the stack of a thread that runs one of its methods.

    `attach` is called as `attach(trainer, url, job=..., token=...)` in a thread beside training, and gives an object
    whose `detach()` puts everything back, and whose `attached`, where it has that, is false once nothing is there.
    """

    name: str
    """As it is told."""
    classes: tuple[str, ...]
    """Full names of the trainer's classes, `module.Class`; one that derives from them is found too."""
    attach: str
    """Full name of the function, `module.function`; imported when a trainer has been found."""


FRAMEWORKS: tuple[Framework, ...] = (
    Framework(
        name="trl",
        classes=(
            "trl.trainer.grpo_trainer.GRPOTrainer",
            "trl.experimental.async_grpo.async_grpo_trainer.AsyncGRPOTrainer",
        ),
        attach="trimtab.hooks.trl.attach",
    ),
)
"""In the order in which they are looked for."""
