"""Draw the tokens of a step, and sum them up as a training process does.

Responses are 64 of up to 512 tokens, 8 to a prompt. Each prompt has its own difficulty, rewards are 0 or 1, advantages
are the group's standardised rewards. The log-ratio trainer - sampler of a token is N(0, 0.04), of 3 % of them
Laplace(0, 0.15), times a scale whose logarithm wanders as AR(1) with a coefficient of 0.9. Log-probs are below 0 by an
exponential of mean 1; entropies are exponential, with a mean that wanders by 3 %. What comes of it goes through the
`Accumulator` of the hooks, so sketches, counts and sums are the real ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.api.backtest.conditions import Conditions, Size
from trimtab.hooks.accumulate import Accumulator
from trimtab.hooks.controls import Controls
from trimtab.hooks.layout import measured
from trimtab.hooks.native import LOADER
from trimtab.hooks.records import StepSummary, TokenBatch

Array = NDArray[np.float32]

CONTROLS = Controls(ratio_reference="sampler")
NARROW, WIDE = 0.04, 0.15
RECOMPUTED = 0.01
"""Spread of the trainer's log-probs between the forward pass of the loss and that before it, nats."""
DIFFICULTY = 4.0
"""Concentration of the prompts' success rates around their mean."""
TAIL = 0.05
"""Share of the negative-advantage tokens that `Conditions.tail` moves."""


def drawn(
    conditions: Conditions, size: Size, rollouts: np.random.Generator, tokens: np.random.Generator, *, pass_index: int
) -> StepSummary:
    """One step's summary.

    Args:
        conditions: what it is drawn from.
        size: how much is sampled.
        rollouts: draws prompts, rewards and lengths: the same for every pass over the same rollouts.
        tokens: draws what belongs to the tokens.
        pass_index: number of the pass.
    """
    rewards = _rewards(conditions, size, rollouts)
    spread = rewards.std(axis=1)
    advantages = ((rewards - rewards.mean(axis=1, keepdims=True)) / (spread[:, None] + 1e-4)).reshape(-1)
    lengths = _lengths(conditions, size, rewards.reshape(-1), rollouts)
    mask = np.arange(size.length) < lengths[:, None]
    tensors = _tensors(conditions, advantages, mask, tokens)
    scalars = {
        "loss": float(tokens.normal(0, 0.01)),
        "grad_norm": float(conditions.gradient * tokens.lognormal(0, 0.2)),
        "reward_mean": float(rewards.mean()),
        "reward_std": float(rewards.std()),
        "garbage_fraction": float(rollouts.binomial(lengths.size, conditions.garbage) / lengths.size),
        "length_mean": float(lengths.mean()),
        "length_p95": float(np.quantile(lengths, 0.95)),
        "zero_variance_fraction": float((spread == 0).mean()),
    }
    if conditions.poison is not None:
        _poison(*conditions.poison, tensors, scalars, mask)
    # The compiled function rounds sums otherwise than numpy: a step must not depend on when the compiler is done.
    LOADER.load(wait=True)
    accumulator = Accumulator()
    accumulator.add(TokenBatch(**tensors, loss_mask=mask), CONTROLS.ratio_reference)
    summary = StepSummary(
        job="drawn",
        attempt=conditions.attempt,
        step=conditions.step,
        scalars=scalars,
        policy_version=conditions.step,
        staleness=1.0,
        pass_index=pass_index,
        applied=CONTROLS,
    )
    return measured(summary, accumulator.drain().read())


def _rewards(conditions: Conditions, size: Size, rng: np.random.Generator) -> Array:
    """[prompts, rollouts], 0 or 1."""
    success = min(max(conditions.success, 1e-3), 1 - 1e-3)
    each = rng.beta(DIFFICULTY * success, DIFFICULTY * (1 - success), (size.prompts, 1))
    return (rng.random((size.prompts, size.rollouts)) < each).astype(np.float32)


def _lengths(conditions: Conditions, size: Size, rewards: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """[prompts x rollouts], tokens."""
    mean = conditions.length + conditions.longer * (0.5 - rewards)
    shares = np.clip(rng.normal(mean, 0.1), 0.02, 1.0)
    return np.ceil(shares * size.length).astype(np.int64)


def _tensors(
    conditions: Conditions, advantages: Array, mask: NDArray[np.bool_], rng: np.random.Generator
) -> dict[str, Any]:
    ratio = _log_ratios(conditions, mask.shape, rng)
    negative = np.flatnonzero(advantages < 0)
    punished = ratio[negative]
    live = punished[mask[negative]]
    if conditions.tail and live.size:
        # Up to and with the quantile, as numpy defines it: one token less, and the quantile itself would stay.
        last = int(TAIL * (live.size - 1))
        punished = punished + np.float32(conditions.tail) * (punished <= np.partition(live, last)[last])
    ratio[negative] = punished + np.float32(conditions.negative)
    ratio[advantages > 0] += np.float32(conditions.positive)
    recomputed = np.float32(RECOMPUTED) * rng.standard_normal(mask.shape, dtype=np.float32)
    # Below 0 whatever the ratio and the recomputed pass add.
    rollout = -rng.standard_exponential(mask.shape, dtype=np.float32) - np.maximum(ratio, 0) - np.float32(0.1)
    train = rollout + ratio
    return {
        "train_logprobs": train,
        "old_logprobs": train - recomputed,
        "rollout_logprobs": rollout,
        "entropy": np.float32(conditions.entropy) * rng.standard_exponential(mask.shape, dtype=np.float32),
        "advantages": advantages.astype(np.float32),
    }


def _log_ratios(conditions: Conditions, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    ratio = np.float32(NARROW) * rng.standard_normal(shape, dtype=np.float32)
    wide = rng.integers(0, ratio.size, rng.binomial(ratio.size, conditions.heavy))
    ratio.reshape(-1)[wide] = rng.laplace(0, WIDE, wide.size)
    ratio *= np.float32(conditions.scale)
    return ratio


def _poison(name: str, value: float, tensors: dict[str, Any], scalars: dict[str, float], mask: Any) -> None:
    """Put `value` in one live token of the tensor, or in the scalar, of that name."""
    if name in scalars:
        scalars[name] = value
    elif name == "advantages":
        tensors[name][0] = value
    else:
        tensors[name][0, int(mask[0].sum()) // 2] = value
