"""Stand-in for AReaL 1.0.4: `grpo_loss_fn`, `PPOActor` and its configuration, as far as the adapter touches them."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rigs.base import Rig, Settings, Step
from trimtab.hooks import areal


class PPOActor:
    """Reads its configuration at every update, and calls the module's loss."""

    def __init__(self, rig: ArealRig) -> None:
        self.rig = rig
        self.config = Settings(
            eps_clip=0.2,
            eps_clip_higher=None,
            c_clip=None,
            rejection_sampling=SimpleNamespace(
                level="token", action="clamp", metric="ratio", agg="mean", upper=5.0, lower=None
            ),
            use_decoupled_loss=True,
            recompute_logprob=False,
        )
        self.last: Step | None = None

    def ppo_update(self, data: list[dict[str, Any]]) -> None:
        for batch in data:
            names = ("eps_clip", "eps_clip_higher", "c_clip", "rejection_sampling", "use_decoupled_loss")
            settings = {name: getattr(self.config, name) for name in names}
            loss_fn = functools.partial(self.rig.losses.grpo_loss_fn, **settings)
            loss = loss_fn(batch["new"], batch["entropy"], batch)
            loss.backward()
            self.last = Step(loss=loss.detach(), gradient=batch["shift"].grad)


class ArealRig(Rig):
    def __init__(self) -> None:
        super().__init__()
        self.losses: Any = SimpleNamespace(grpo_loss_fn=self.grpo_loss_fn)
        self.actor = PPOActor(self)

    def grpo_loss_fn(
        self,
        logprobs: Tensor,
        entropy: Tensor,
        input_data: dict[str, Any],
        eps_clip: float,
        eps_clip_higher: float | None,
        c_clip: float | None,
        rejection_sampling: Any = None,
        use_decoupled_loss: bool = False,
    ) -> Tensor:
        del entropy
        proximal = input_data["prox_logp"] if use_decoupled_loss else input_data["logprobs"]
        high = eps_clip if eps_clip_higher is None else eps_clip_higher
        loss = self.clipped(logprobs - proximal, input_data["advantages"], low=eps_clip, high=high, dual=c_clip)
        if rejection_sampling is not None:
            weights = (proximal - input_data["logprobs"]).exp()
            loss = loss * weights.clamp(min=rejection_sampling.lower, max=rejection_sampling.upper).detach()
        mask = input_data["loss_mask"].bool()
        return torch.where(mask, loss, 0).sum() / mask.count_nonzero()

    def attach(self, url: str = "memory:", job: str = "run") -> None:
        self.attachment = areal.attach(self.actor, url=url, job=job, losses=self.losses)

    def step(self) -> Step:
        batch = self.batch()
        data = {
            "new": batch.train,
            "shift": batch.shift,
            "entropy": batch.entropy,
            "logprobs": batch.rollout,
            "prox_logp": batch.old,
            "advantages": batch.advantages,
            "loss_mask": batch.mask,
        }
        self.actor.ppo_update([data])
        assert self.actor.last is not None
        return self.actor.last
