"""A compiled loss whose clip bounds change while it runs, and which is compiled once. `python compiled.py [URL]`."""

from __future__ import annotations

import sys

import torch
from tiny_policy import Policy, logprobs_of, sampled

import trimtab
from trimtab import Capabilities, Controls
from trimtab.hooks.controls import Liveness
from trimtab.hooks.live_tensors import LiveTensors

LR, STEPS = 0.02, 12


def loss_of(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, low: torch.Tensor, high: torch.Tensor
) -> torch.Tensor:
    """PPO's clipped loss; the bounds are tensors of no dimensions."""
    ratio = (logprobs - old).exp()
    bounded = torch.minimum(torch.maximum(ratio, low), high)
    return -torch.minimum(ratio * advantages, bounded * advantages).mean()


def main(url: str) -> None:
    """Train; the run's own schedule narrows the clip bounds, and an agent may too."""
    torch.manual_seed(0)
    policy, generator = Policy(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=torch.tensor(LR))
    compiled, graphs = torch.compile(loss_of, backend=(counted := Counted())), counted
    can = Capabilities(
        controls=dict.fromkeys(("clip_low", "clip_high", "lr_scale"), Liveness.LIVE), rollout_logprobs=True
    )
    emitter = trimtab.attach(url, job="compiled", controls=Controls(ratio_reference="sampler"), capabilities=can)
    live = LiveTensors(emitter.controls)
    for step in range(STEPS):
        rollouts = sampled(policy, generator)
        logprobs = logprobs_of(policy, rollouts.tokens)
        emitter.observe(
            train_logprobs=logprobs,
            rollout_logprobs=rollouts.rollout_logprobs,
            advantages=rollouts.advantages,
            loss_mask=rollouts.loss_mask,
        )
        loss = compiled(logprobs, rollouts.rollout_logprobs, rollouts.advantages, live.ratio_low, live.ratio_high)
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            torch.mul(live.lr_scale, LR, out=group["lr"])
        optimizer.step()
        base = Controls(ratio_reference="sampler", clip_low=0.2 - 0.01 * step, clip_high=0.2 - 0.01 * step)
        live.update(emitter.end_step(step=step, scalars={"reward_mean": rollouts.reward_mean}, base=base))
    emitter.close()
    print(f"{STEPS} steps, clip bounds to {live.ratio_low:.2f} and {live.ratio_high:.2f}, compiled {graphs.count} time")


class Counted:
    """A backend that counts what it compiles; yours is `torch.compile(loss_of)`."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        """The graph as it is."""
        self.count += 1
        return graph


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory:")
