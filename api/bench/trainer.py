"""The trainer that benches time."""

from __future__ import annotations

from torch import nn

from trimtab.hooks.emitter import Emitter
from trimtab.hooks.transport.memory import MemoryTransport
from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import capabilities
from trimtab.trainer.grpo import GRPOTrainer
from trimtab.trainer.tasks.task import Task


def bench_trainer(config: RunConfig, model: nn.Module, task: Task) -> GRPOTrainer:
    """At step 0, attached to nothing."""
    emitter = Emitter(
        MemoryTransport(), job="bench", attempt=0, controls=config.controls, capabilities=capabilities(config, model)
    )
    return GRPOTrainer(config, emitter, model, task)
