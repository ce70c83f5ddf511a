"""A GRPOTrainer of TRL on one rank of several, for processes that import it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch.distributed as dist
import trl_runs as runs
from transformers import TrainerCallback

from trimtab.hooks.trl import attach


def train_attached(folder: Path) -> dict[str, Any]:
    """Train four steps, with a command that rank 0 hears in the first. What was seen on this rank."""
    rank = dist.get_rank()
    warnings.simplefilter("ignore")
    # The group is there already; accelerate asks for an address all the same.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", ACCELERATE_USE_CPU="1")
    trainer = runs.grpo(folder / str(rank), per_device_train_batch_size=4, sampler=runs.Sampler())
    epsilons: list[float] = []

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            epsilons.append(trainer.epsilon_low)

    attachment = attach(trainer, "memory:", job="run")
    if rank == 0:
        runs.wish(attachment, 1, clip_low=0.05)
    trainer.add_callback(Watch())
    trainer.train()
    return {
        "epsilons": epsilons,
        "failures": attachment.failures,
        "sent": runs.sent(attachment) if rank == 0 else [],
        "weights": {name: value.detach().clone() for name, value in trainer.model.named_parameters()},
        "processes": trainer.accelerator.num_processes,
    }
