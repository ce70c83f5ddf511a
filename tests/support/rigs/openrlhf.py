"""Stand-in for OpenRLHF 0.11.2: `PolicyLoss` and `ActorPPOTrainer`, as far as the adapter touches them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rigs.base import Rig, Step
from trimtab.hooks import openrlhf


class PolicyLoss(nn.Module):
    """Its attributes are read at every call."""

    def __init__(self, rig: Rig, level: str = "token") -> None:
        super().__init__()
        self.rig = rig
        self.clip_eps_low, self.clip_eps_high, self.dual_clip = 0.2, 0.3, None
        self.policy_loss_type = "ppo"
        self.is_correction_level, self.is_correction_mode, self.is_correction_gating = level, "clip", "ratio"
        self.is_correction_threshold = [0.5, 5.0]

    def forward(
        self,
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        action_mask: Tensor | None = None,
        rollout_log_probs: Tensor | None = None,
        dp_size: int = 1,
        batch_num_tokens: float | None = None,
        global_batch_size: float | None = None,
    ) -> tuple[Any, ...]:
        del global_batch_size
        assert action_mask is not None
        bounds = {"low": self.clip_eps_low, "high": self.clip_eps_high, "dual": self.dual_clip}
        loss = self.rig.clipped(log_probs - old_log_probs, advantages, **bounds)
        if self.is_correction_level != "off":
            assert rollout_log_probs is not None
            low, high = self.is_correction_threshold
            ratio = (old_log_probs - rollout_log_probs).exp()
            kept = (ratio >= low) & (ratio <= high)
            loss = loss * (ratio.clamp(low, high) if self.is_correction_mode == "clip" else torch.where(kept, ratio, 0))
        tokens = action_mask.sum() if batch_num_tokens is None else batch_num_tokens
        zero = torch.zeros(())
        return (loss * action_mask).sum() / tokens * dp_size, zero, zero, zero, zero


class ActorPPOTrainer:
    """Two updates on one batch of rollouts."""

    def __init__(self, rig: Rig, level: str = "token") -> None:
        self.strategy = SimpleNamespace(ring_attn_rank=0)
        self.actor_loss_fn = PolicyLoss(rig, level)
        self.rig = rig
        self.losses: list[Step] = []

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        del kl_ctl
        for _ in range(2):
            batch = self.rig.batch()
            loss, *_ = self.actor_loss_fn(
                batch.train,
                batch.old,
                batch.advantages,
                action_mask=batch.mask,
                rollout_log_probs=batch.rollout,
                dp_size=1,
                batch_num_tokens=20.0,
            )
            loss.backward()
            assert batch.shift.grad is not None
            self.losses.append(Step(loss=loss.detach(), gradient=batch.shift.grad))
        return {"policy_loss": float(loss.detach()), "actor_grad_norm": 1.0}


class OpenRlhfRig(Rig):
    def __init__(self, level: str = "token") -> None:
        super().__init__()
        self.trainer = ActorPPOTrainer(self, level)

    def attach(self, url: str = "memory:", job: str = "run") -> None:
        self.attachment = openrlhf.attach(self.trainer, url=url, job=job)

    def step(self) -> Step:
        self.trainer.losses.clear()
        self.trainer.ppo_train(0.0)
        return self.trainer.losses[-1]
