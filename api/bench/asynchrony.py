"""What sampling ahead of the trainer gains, on two cores, beside sampling when a step asks, in the same run.

The runs take turns, a block of steps each. A block begins with an empty queue and ends with what was sampled in vain
thrown away, so filling the queue is paid for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass

import torch

from trimtab.api.bench.spread import Spread
from trimtab.api.bench.trainer import bench_trainer
from trimtab.hooks.controls import Controls
from trimtab.trainer.build import build
from trimtab.trainer.config import RunConfig
from trimtab.trainer.grpo import GRPOTrainer
from trimtab.trainer.rollouts.ahead import Ahead
from trimtab.trainer.sections import AsynchronyConfig, ShadowConfig, UpdateConfig

BLOCK_STEPS = 12
MAX_STALENESS = 2


@dataclass(frozen=True, slots=True)
class _Mode:
    name: str
    asynchrony: AsynchronyConfig
    threads: int


MODES = (
    _Mode("synchronous, 1 thread", AsynchronyConfig(), 1),
    _Mode("synchronous, 2 threads", AsynchronyConfig(), 2),
    _Mode("ahead, in a thread", AsynchronyConfig(mode="thread", max_staleness=MAX_STALENESS), 1),
    _Mode("ahead, in a process", AsynchronyConfig(mode="process", max_staleness=MAX_STALENESS), 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One mode's throughput."""

    mode: str
    steps_per_second: float
    """Median over blocks."""
    ratio: float
    """Median over blocks of this mode's throughput against that of the synchronous block just before it, 1 thread."""
    ratio_p10: float
    ratio_p90: float
    trainer_idle: float
    """Share of the time in which the trainer waited for rollouts; all of the sampling, where it is synchronous."""
    sampler_idle: float
    """Share of the time in which the sampler did not sample."""


@dataclass(frozen=True, slots=True)
class _Block:
    seconds: float
    waited: float
    sampled: float


WORKLOAD = RunConfig(
    steps=10_000,
    update=UpdateConfig(minibatches=1),
    shadow=ShadowConfig(every=0),
    controls=Controls(ratio_reference="sampler", sampler_format="nvfp4"),
)
"""The demo's model and batch with one update a step and no twin, so that sampling takes about as long as training."""


def bench_asynchrony(
    blocks: int, base: RunConfig = WORKLOAD, on_block: Callable[[], None] = lambda: None
) -> list[Throughput]:
    """`blocks` blocks of each mode on `base`; `on_block` is called after each round of blocks."""
    measured: dict[str, list[_Block]] = {mode.name: [] for mode in MODES}
    with ExitStack() as stack:
        trainers = {mode.name: stack.enter_context(closing(_trainer(base, mode))) for mode in MODES}
        for trainer in trainers.values():
            trainer.step()
            trainer.supply.stop()
        for _ in range(blocks):
            for mode in MODES:
                measured[mode.name].append(_block(trainers[mode.name], mode.threads))
            on_block()
    torch.set_num_threads(1)
    return [_throughput(name, taken, measured[MODES[0].name]) for name, taken in measured.items()]


def _trainer(base: RunConfig, mode: _Mode) -> GRPOTrainer:
    config = base.model_copy(update={"asynchrony": mode.asynchrony})
    return bench_trainer(config, *build(config))


def _block(trainer: GRPOTrainer, threads: int) -> _Block:
    torch.set_num_threads(threads)
    started = time.perf_counter()
    waited = sum(trainer.step().rollout_seconds for _ in range(BLOCK_STEPS))
    seconds = time.perf_counter() - started
    supply = trainer.supply
    if not isinstance(supply, Ahead):
        return _Block(seconds, waited, sampled=waited)
    sampled = seconds - supply.idle
    supply.stop()
    supply.idle = 0.0
    return _Block(seconds, waited, sampled)


def _throughput(name: str, taken: list[_Block], reference: list[_Block]) -> Throughput:
    ratio = Spread.of(theirs.seconds / mine.seconds for mine, theirs in zip(taken, reference, strict=True))
    return Throughput(
        mode=name,
        steps_per_second=statistics.median(BLOCK_STEPS / block.seconds for block in taken),
        ratio=ratio.median,
        ratio_p10=ratio.p10,
        ratio_p90=ratio.p90,
        trainer_idle=statistics.median(block.waited / block.seconds for block in taken),
        sampler_idle=statistics.median(1 - block.sampled / block.seconds for block in taken),
    )
