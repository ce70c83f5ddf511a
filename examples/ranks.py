"""Several processes, with DistributedDataParallel or FSDP2: every rank attaches with a collective, rank 0 reports for
all. `torchrun --nproc-per-node 2 ranks.py ddp [URL]`, or `fsdp2`.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from tiny_policy import Policy, clipped, logprobs_of, sampled
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import trimtab
from trimtab import Capabilities, Controls
from trimtab.hooks.collective_torch import TorchCollective
from trimtab.hooks.controls import Liveness

STEPS = 10


def split(policy: Policy, how: str) -> nn.Module:
    """The policy, copied to every rank or spread over them."""
    if how == "ddp":
        return DistributedDataParallel(policy)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (policy.hidden, policy.head):
        fully_shard(part, mesh=mesh)
    return fully_shard(policy, mesh=mesh)


def main(how: str, url: str) -> None:
    """Join the other ranks, train, and part."""
    dist.init_process_group("gloo")
    train(how, url)
    dist.destroy_process_group()  # once the model is gone: DDP that outlives its group can hang in its destructor


def train(how: str, url: str) -> None:
    """Train on this rank's share of the responses."""
    torch.manual_seed(0)
    policy = split(Policy(), how)
    generator = torch.Generator().manual_seed(dist.get_rank())
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    can = Capabilities(controls={"clip_low": Liveness.LIVE, "clip_high": Liveness.LIVE}, rollout_logprobs=True)
    own = Controls(ratio_reference="sampler")
    emitter = trimtab.attach(url, job=how, controls=own, capabilities=can, collective=TorchCollective())
    controls = emitter.controls
    for step in range(STEPS):
        rollouts = sampled(policy, generator)
        logprobs = logprobs_of(policy, rollouts.tokens)
        emitter.observe(
            train_logprobs=logprobs,
            rollout_logprobs=rollouts.rollout_logprobs,
            advantages=rollouts.advantages,
            loss_mask=rollouts.loss_mask,
        )
        loss = clipped(logprobs, rollouts, 1 - controls.clip_low, 1 + controls.clip_high).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reward = torch.tensor(rollouts.reward_mean)
        dist.all_reduce(reward)
        scalars = {"reward_mean": reward.item() / dist.get_world_size()}  # those of rank 0 count
        controls = emitter.end_step(step=step, scalars=scalars)
    emitter.close()
    if dist.get_rank() == 0:
        assert emitter.last_summary is not None
        summary = emitter.last_summary
        print(f"{how}: {STEPS} steps, {summary.sketches['update'].n} tokens of {summary.ranks} ranks in the last")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "memory:")
