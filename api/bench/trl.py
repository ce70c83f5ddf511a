"""What a training step costs beside TRL's GRPOTrainer: the same model, task, batch, lengths and threads.

Both train a tiny random Qwen3 on running sums in float32, with the embedded sampler and TRL's own generation: the same
number of prompts and responses a step, two updates on each batch of responses, PPO clip, token mean, no KL penalty.
They take turns, a step each. A step is everything from sampling to the last update, and trimtab's includes what its
hooks measure.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trimtab.api.bench.spread import Spread
from trimtab.api.bench.tiny import TinyShape, tiny_qwen3, tiny_trainer
from trimtab.api.bench.trl_task import arguments, questions, reward, tokenizer
from trimtab.api.bench.turns import turns
from trimtab.hooks.controls import Controls
from trimtab.trainer.config import RunConfig
from trimtab.trainer.sections import RolloutConfig, ShadowConfig, UpdateConfig
from trimtab.trainer.tasks.running_sum import RunningSum

UPDATES = 2
"""Updates on each batch of responses."""
WARM_UP_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What both train."""

    name: str
    shape: TinyShape
    prompts: int
    group_size: int
    task: RunningSum


WORKLOADS = (
    Workload(
        name="192 responses of up to 11 tokens, 2 layers of 64",
        shape=TinyShape(layers=2, width=64, hidden=256, vocabulary=16),
        prompts=24,
        group_size=8,
        task=RunningSum(digits=8),
    ),
    Workload(
        name="16 responses of up to 32 tokens, 4 layers of 128",
        shape=TinyShape(),
        prompts=2,
        group_size=8,
        task=RunningSum(digits=29),
    ),
)
"""The demo's, and a smaller batch of longer responses on a larger model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCost:
    """Both trainers' steps."""

    workload: str
    ours_ms: float
    """Median."""
    trl_ms: float
    """Median."""
    ratio: float
    """Median over pairs of steps of ours by TRL's."""
    ratio_p10: float
    ratio_p90: float


def bench_trl(steps: int, on_step: Callable[[], None] = lambda: None) -> list[PeerCost]:
    """The cost of `steps` steps of either on each workload; `on_step` is called after each pair."""
    torch.set_num_threads(1)
    return [_cost(workload, steps, on_step) for workload in WORKLOADS]


def _cost(workload: Workload, steps: int, on_step: Callable[[], None]) -> PeerCost:
    config = RunConfig(
        rollout=RolloutConfig(prompts=workload.prompts, group_size=workload.group_size),
        update=UpdateConfig(minibatches=UPDATES),
        shadow=ShadowConfig(every=0),
        controls=Controls(sampler_format="fp32", train_format="fp32"),
    )
    ours = tiny_trainer(config, workload.shape, workload.task)
    with tempfile.TemporaryDirectory() as folder:
        pairs = []
        their = turns(_trl_trainer(workload, config, folder, steps + WARM_UP_STEPS), steps + WARM_UP_STEPS, UPDATES)
        for seconds, _ in their:
            started = time.perf_counter()
            ours.step()
            pairs.append((time.perf_counter() - started, seconds))
            on_step()
    pairs = pairs[WARM_UP_STEPS:]
    ratio = Spread.of(mine / peer for mine, peer in pairs)
    return PeerCost(
        workload=workload.name,
        ours_ms=1000 * statistics.median(mine for mine, _ in pairs),
        trl_ms=1000 * statistics.median(peer for _, peer in pairs),
        ratio=ratio.median,
        ratio_p10=ratio.p10,
        ratio_p90=ratio.p90,
    )


def _trl_trainer(workload: Workload, config: RunConfig, folder: str, steps: int) -> Any:
    from trl.trainer.grpo_trainer import GRPOTrainer as TRLTrainer

    task = workload.task
    rollout, update = config.rollout, config.update
    settings = arguments(
        Path(folder),
        per_device_train_batch_size=rollout.prompts * rollout.group_size // UPDATES,
        num_generations=rollout.group_size,
        steps_per_generation=UPDATES,
        max_completion_length=task.response_length,
        temperature=rollout.temperature,
        loss_type="dapo",
        beta=0.0,
        epsilon=config.controls.clip_low,
        learning_rate=update.lr,
        max_grad_norm=update.gradient_clip,
        lr_scheduler_type="constant",
        max_steps=steps * UPDATES,
    )
    return TRLTrainer(
        tiny_qwen3(workload.shape),
        reward_funcs=reward,
        args=settings,
        train_dataset=questions(task, 1000, 0),
        processing_class=tokenizer(),
    )
