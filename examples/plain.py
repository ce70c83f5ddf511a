"""A loop of plain PyTorch in three lines: attach, observe, end_step. `python plain.py [URL]`."""

from __future__ import annotations

import sys

import torch
from tiny_policy import Policy, clipped, logprobs_of, sampled

import trimtab
from trimtab import Capabilities, Controls
from trimtab.hooks.controls import Liveness

LR, STEPS = 0.02, 40


def main(url: str) -> None:
    """Train, with clip bounds and learning rate that can be changed meanwhile."""
    torch.manual_seed(0)
    policy, generator = Policy(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=LR)
    own = Controls(ratio_reference="sampler", clip_high=0.28)
    can = Capabilities(
        controls=dict.fromkeys(("clip_low", "clip_high", "lr_scale"), Liveness.LIVE), rollout_logprobs=True
    )
    emitter = trimtab.attach(url, job="plain", controls=own, capabilities=can)  # 1. once
    controls = emitter.controls
    for step in range(STEPS):
        rollouts = sampled(policy, generator)
        logprobs = logprobs_of(policy, rollouts.tokens)
        emitter.observe(  # 2. where the loss is computed
            train_logprobs=logprobs,
            rollout_logprobs=rollouts.rollout_logprobs,
            advantages=rollouts.advantages,
            loss_mask=rollouts.loss_mask,
        )
        loss = clipped(logprobs, rollouts, 1 - controls.clip_low, 1 + controls.clip_high).mean()
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = LR * controls.lr_scale
        optimizer.step()
        scalars = {"reward_mean": rollouts.reward_mean, "loss": loss.item()}
        controls = emitter.end_step(step=step, scalars=scalars)  # 3. after the optimizer's step
    emitter.close()
    assert emitter.last_summary is not None
    tokens = emitter.last_summary.sketches["update"].n
    print(f"{STEPS} steps, {tokens} tokens in the last, reward {rollouts.reward_mean:.2f}, {emitter.failures} failures")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory:")
