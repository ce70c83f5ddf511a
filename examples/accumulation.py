"""Gradient accumulation: `observe` once a micro-batch, `end_step` once an optimizer step.

`python accumulation.py [URL]`
"""

from __future__ import annotations

import sys

import torch
from tiny_policy import GROUP, LENGTH, Policy, Rollouts, clipped, logprobs_of, sampled

import trimtab
from trimtab import Controls

MICRO_BATCHES, STEPS = 4, 20


def micro_batches(rollouts: Rollouts) -> list[Rollouts]:
    """The rollouts of a step in `MICRO_BATCHES` parts."""
    size = GROUP // MICRO_BATCHES
    parts = (slice(start, start + size) for start in range(0, GROUP, size))
    return [
        Rollouts(
            tokens=rollouts.tokens[part],
            rollout_logprobs=rollouts.rollout_logprobs[part],
            advantages=rollouts.advantages[part],
            loss_mask=rollouts.loss_mask[part],
            reward_mean=rollouts.reward_mean,
        )
        for part in parts
    ]


def main(url: str) -> None:
    """Train, four micro-batches a step."""
    torch.manual_seed(0)
    policy, generator = Policy(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    emitter = trimtab.attach(url, job="accumulation", controls=Controls(ratio_reference="sampler"))
    for step in range(STEPS):
        rollouts = sampled(policy, generator)
        for micro in micro_batches(rollouts):
            logprobs = logprobs_of(policy, micro.tokens)
            emitter.observe(
                train_logprobs=logprobs,
                rollout_logprobs=micro.rollout_logprobs,
                advantages=micro.advantages,
                loss_mask=micro.loss_mask,
            )
            # by the tokens of the step and not of the micro-batch, so that the gradient is that of one large batch
            (clipped(logprobs, micro, 0.8, 1.2).sum() / (GROUP * LENGTH)).backward()
        optimizer.step()
        optimizer.zero_grad()
        emitter.end_step(step=step, scalars={"reward_mean": rollouts.reward_mean})
    emitter.close()
    assert emitter.last_summary is not None
    summary = emitter.last_summary
    tokens, responses = summary.sketches["update"].n, summary.sequences.observed
    print(f"{STEPS} steps of {MICRO_BATCHES} micro-batches: {tokens} tokens of {responses} responses in the last")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory:")
