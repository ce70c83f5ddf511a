"""How far each number format's sampler is from BF16: the precision ladder of a warm-started model.

For every format the sampler answers the same prompts, and what it recorded is compared with a BF16 forward pass of the
same weights over the same tokens: d = log p_bf16 - log q of each sampled token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from trimtab.trainer.build import build
from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import TWIN_FORMAT, converted
from trimtab.trainer.quant import fitting_formats
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Update
from trimtab.trainer.rollouts.torch_sampler import TorchSampler
from trimtab.trainer.scoring import Scorer
from trimtab.trainer.tasks.task import Task

PROMPTS = 768


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One format's mismatch."""

    format: str
    """With `+ fp8 kv` where keys and values are stored in FP8 too."""
    std: float
    """Of d, nats."""
    largest: float
    """max |d|, nats."""
    mismatch_kl: float
    """k3 estimate of KL(q || p), nats."""
    reward: float
    """Mean, under the format's sampler."""


def ladder(config: RunConfig, prompts: int = PROMPTS, on_rung: Callable[[], None] = lambda: None) -> list[Rung]:
    """Every format that fits the configured model, BF16 first; `on_rung` is called after each."""
    torch.set_num_threads(1)
    model, task = build(config)
    twin = converted(model, config, TWIN_FORMAT).eval().requires_grad_(False)
    sampler = TorchSampler(converted(model, config, TWIN_FORMAT), end=task.end, pad=task.pad)
    formats = (TWIN_FORMAT, *(name for name in fitting_formats(twin) if name not in ("fp32", TWIN_FORMAT)))
    rungs = []
    for name, kv_format in ((TWIN_FORMAT, "none"), (TWIN_FORMAT, "fp8"), *((name, "none") for name in formats[1:])):
        sampler.sync(Update(weights=model.state_dict(), version=0, number_format=name, kv_format=kv_format))
        rollout = sampler.generate(
            task.prompts(prompts, torch.Generator().manual_seed(1)),
            task.response_length,
            head=0,
            temperature=1.0,
            generator=torch.Generator().manual_seed(2),
        )
        rungs.append(_rung(f"{name} + fp8 kv" if kv_format == "fp8" else name, rollout, twin, task))
        on_rung()
    return rungs


@torch.no_grad()
def _rung(name: str, rollout: Rollout, twin: nn.Module, task: Task) -> Rung:
    graded = task.grade(rollout.prompts, rollout.responses)
    scorer = Scorer(task.response_length, 1.0)
    reference = scorer.logprobs(twin, rollout.inputs, rollout.prompts.padding, rollout.responses)
    d = (reference - rollout.logprobs)[graded.mask > 0].double()
    return Rung(
        format=name,
        std=float(d.std()),
        largest=float(d.abs().max()),
        mismatch_kl=float((torch.expm1(d) - d).mean()),
        reward=float(graded.rewards.mean()),
    )
