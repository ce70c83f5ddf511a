"""Supervised warm start, cached: half a minute on one core the first time, nothing after."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trimtab.hooks.compiled import cache_dir
from trimtab.trainer.config import RunConfig
from trimtab.trainer.models.decoder import DecoderLM, ModelShape
from trimtab.trainer.sections import DecoderConfig, RunningSumConfig, WarmStartConfig
from trimtab.trainer.tasks.running_sum import RunningSum

RECIPE = 2
"""Grows when the procedure below changes, so that old caches are not read."""
WARM_UP_STEPS = 50
WEIGHT_DECAY = 0.01

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""


def build_decoder(config: RunConfig) -> DecoderLM:
    """The configured embedded model with its initial weights, unquantised."""
    model, task = config.model, _task(config)
    assert isinstance(model, DecoderConfig)
    shape = ModelShape(
        vocabulary=task.vocabulary,
        max_length=task.sequence_length,
        width=model.width,
        layers=model.layers,
        heads=model.heads,
        hidden=model.hidden,
    )
    return DecoderLM(shape, seed=config.warm_start.seed, gradient_checkpointing=model.gradient_checkpointing)


def _task(config: RunConfig) -> RunningSum:
    assert isinstance(config.task, RunningSumConfig)  # the configuration allows the embedded model no other
    return RunningSum(digits=config.task.digits, modulus=config.task.modulus)


def warm_weights(config: RunConfig, progress: Progress | None = None) -> dict[str, Tensor]:
    """Weights after the warm start, from the cache if it was ever run with this model, task and recipe."""
    sizes = config.model.model_dump_json(include={"width", "layers", "heads", "hidden"})
    # Sums modulo 10 came first: their caches have no modulus in the name.
    task = config.task.model_dump_json(exclude={"modulus"} if _task(config).modulus == 10 else None)
    settings = "|".join((task, sizes, config.warm_start.model_dump_json()))
    key = hashlib.sha256(f"{RECIPE}|{settings}".encode()).hexdigest()[:16]
    return cached(cache_dir() / f"warm-start-{key}.pt", lambda: _train(config, progress))


def cached(path: Path, train: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Weights from a file, or those that `train` gives, which are then in that file.

    They are trained on one thread, so that they do not depend on how many cores there are.
    """
    if path.exists():
        return torch.load(path, weights_only=True)  # type: ignore[no-any-return]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        weights = train()
    finally:
        torch.set_num_threads(threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    torch.save(weights, partial)
    partial.replace(path)  # atomic: a run beside this one never reads half a file
    return weights


def _train(config: RunConfig, progress: Progress | None) -> dict[str, Tensor]:
    model = build_decoder(config)
    imitate(
        model, lambda tokens, last: model(tokens, keep_last=last), _task(config), config.warm_start, progress=progress
    )
    return weights_of(model)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of them."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def imitate(
    model: nn.Module,
    logits_of: Callable[[Tensor, int], Tensor],
    task: RunningSum,
    settings: WarmStartConfig,
    *,
    progress: Progress | None = None,
) -> None:
    """Train `model` on chains that slip now and then.

    Args:
        model: whose parameters are trained.
        logits_of: [B, T] tokens, L -> [B, L, vocabulary] logits of the last L positions.
        task: whose chains they are.
        settings: how long and how.
        progress: told of every step.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=WEIGHT_DECAY)
    for step in range(settings.steps):
        cosine = 0.5 * (1 + math.cos(math.pi * step / settings.steps))
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * min(1.0, (step + 1) / WARM_UP_STEPS) * (0.1 + 0.9 * cosine)
        prompts = task.prompts(settings.batch, generator).tokens
        answers = task.corrupted_answers(prompts, settings.error_rate, generator)
        tokens = torch.cat([prompts, answers], 1)[:, :-1]
        logits = logits_of(tokens, answers.shape[1])
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if progress is not None:
            progress(step + 1, settings.steps)
