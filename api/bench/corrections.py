"""What score centering and the BF16 twin add to a training step of the same run without them.

A tiny random Qwen3 with 512 tokens learns running sums. Centering: rollouts record a head of 32 log-probs and the loss
integrates over it, against neither. Twin: an NVFP4 trainer computes the ratio in BF16 too, at two versions of the
weights, against one that does not; what a run pays is that, divided by the steps between two twins.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from trimtab.api.bench.spread import Spread
from trimtab.api.bench.tiny import TinyShape, tiny_trainer
from trimtab.hooks.controls import Controls
from trimtab.trainer.config import RunConfig
from trimtab.trainer.sections import RolloutConfig, ShadowConfig
from trimtab.trainer.tasks.running_sum import RunningSum

HEAD = 32
WARM_UP_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What one correction adds."""

    name: str
    milliseconds: float
    """Median of the step with it."""
    overhead: float
    """Median over pairs of steps of the step with it by the one without, less 1."""
    overhead_p10: float
    overhead_p90: float
    amortised: float
    """The overhead by the default number of steps between two of them."""


def bench_corrections(steps: int, on_step: Callable[[], None] = lambda: None) -> list[Overhead]:
    """Overheads over `steps` pairs of steps, which take turns; `on_step` is called after each pair of each."""
    torch.set_num_threads(1)
    every = ShadowConfig().every
    none, twin = ShadowConfig(every=0), ShadowConfig(every=1)
    bf16, nvfp4 = Controls(), Controls(train_format="nvfp4", sampler_format="nvfp4")
    headless, headed = RolloutConfig(head=0), RolloutConfig(head=HEAD)
    return [
        _overhead(
            f"score centering, k = {HEAD}",
            RunConfig(rollout=headless, shadow=none, controls=bf16),
            RunConfig(rollout=headed, shadow=none, controls=Controls(centering=True)),
            every=1,
            steps=steps,
            on_step=on_step,
        ),
        _overhead(
            f"BF16 twin, every {every} steps",
            RunConfig(rollout=headless, shadow=none, controls=nvfp4),
            RunConfig(rollout=headless, shadow=twin, controls=nvfp4.overlaid({"clip_mode": "calibrated"})),
            every=every,
            steps=steps,
            on_step=on_step,
        ),
    ]


def _overhead(
    name: str, without: RunConfig, with_it: RunConfig, *, every: int, steps: int, on_step: Callable[[], None]
) -> Overhead:
    plain, corrected = (tiny_trainer(config, TinyShape(), RunningSum()) for config in (without, with_it))
    pairs = []
    for _ in range(WARM_UP_STEPS + steps):
        pairs.append((plain.step().seconds, corrected.step().seconds))
        on_step()
    pairs = pairs[WARM_UP_STEPS:]
    overhead = Spread.of(corrected / plain - 1 for plain, corrected in pairs)
    return Overhead(
        name=name,
        milliseconds=1000 * statistics.median(corrected for _, corrected in pairs),
        overhead=overhead.median,
        overhead_p10=overhead.p10,
        overhead_p90=overhead.p90,
        amortised=overhead.median / every,
    )
