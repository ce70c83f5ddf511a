"""What a whole training step costs with rollouts in each format, beside BF16 rollouts in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from trimtab.api.bench.spread import Spread
from trimtab.api.bench.trainer import bench_trainer
from trimtab.trainer.build import build
from trimtab.trainer.config import RunConfig
from trimtab.trainer.grpo import GRPOTrainer
from trimtab.trainer.quant import kernels
from trimtab.trainer.scenarios import SCENARIOS

REFERENCE = "bf16"
FORMATS = ("fp8-tensor", "fp8-row", "fp8-block-32", "mxfp8", "nvfp4", "nvfp4-46")
WARM_UP_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Cost of one format's step."""

    format: str
    milliseconds: float
    """Median."""
    ratio: float
    """Median over steps of this format's step against the BF16 step taken just before it."""
    ratio_p10: float
    ratio_p90: float


def bench_step(steps: int, on_step: Callable[[], None] = lambda: None) -> tuple[str, list[StepCost]]:
    """Backend of the formats (`native` or `torch`), and the cost of `steps` steps of the demo's run in each format.

    The runs take turns, a step each, so that a machine that slows down slows all of them. `on_step` is called after
    each turn.
    """
    torch.set_num_threads(1)
    base = next(run.config for run in SCENARIOS["cliff"].runs if run.name == "agent")
    trainers = {name: _trainer(base, name) for name in (REFERENCE, *FORMATS)}
    for trainer in trainers.values():
        for _ in range(WARM_UP_STEPS):
            trainer.step()
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in range(steps):
        for name, trainer in trainers.items():
            seconds[name].append(trainer.step().seconds)
        on_step()
    return kernels.backend(), [_cost(name, taken, seconds[REFERENCE]) for name, taken in seconds.items()]


def _trainer(base: RunConfig, number_format: str) -> GRPOTrainer:
    config = base.model_copy(update={"controls": base.controls.overlaid({"sampler_format": number_format})})
    return bench_trainer(config, *build(config))


def _cost(name: str, taken: list[float], reference: list[float]) -> StepCost:
    ratio = Spread.of(mine / theirs for mine, theirs in zip(taken, reference, strict=True))
    return StepCost(
        format=name,
        milliseconds=1000 * statistics.median(taken),
        ratio=ratio.median,
        ratio_p10=ratio.p10,
        ratio_p90=ratio.p90,
    )
