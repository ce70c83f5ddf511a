"""What a step came to."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.hooks.controls import Controls


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One line of `steps.jsonl`."""

    step: int
    attempt: int
    reward_mean: float
    """Under the run's own sampler."""
    garbage_fraction: float
    length_mean: float
    entropy: float
    """Trainer's entropy, mean over live tokens, nats."""
    mismatch_std: float
    """Standard deviation of log p_old - log q over live tokens, nats."""
    grad_norm: float
    """Mean over the step's updates, before clipping."""
    loss: float
    clip_low: float
    """Lower bound of the ratio that was in effect."""
    clip_high: float
    controls: Controls
    generation: int
    train_engine: str
    """What the trainer's quantised layers computed with, such as `nvfp4-emulated`."""
    sampler_engine: str
    staleness: float
    """Mean age of the tokens trained on, in versions of the weights."""
    rollout_seconds: float
    """How long the trainer waited for the step's responses: all of the sampling, where it is not ahead."""
    seconds: float
