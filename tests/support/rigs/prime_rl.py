"""Stand-in for prime-rl at 559b44772: `LossInputs`, `LossOutputs`, a built-in loss, and a loop with an optimizer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rigs.base import Rig, Step
from trimtab.hooks import prime_rl

VOCABULARY = 32


@dataclass
class LossInputs:
    trainer_logprobs: Tensor
    inference_logprobs: Tensor
    ref_logprobs: Tensor | None
    advantages: Tensor
    loss_mask: Tensor
    loss_weights: Tensor | None = field(default=None)


@dataclass
class LossOutputs:
    loss: Tensor
    metrics: dict[str, Tensor]


def default_loss_fn(inputs: LossInputs, loss_config: Any) -> LossOutputs:
    """A trust region on the difference of probabilities, a weight that is not bounded, a quadratic penalty."""
    log_ratio = inputs.trainer_logprobs - inputs.inference_logprobs
    moved = inputs.trainer_logprobs.exp() - inputs.inference_logprobs.exp()
    positive = inputs.advantages > 0
    outside = torch.where(positive, moved > loss_config.dppo_mask_high, moved < -loss_config.dppo_mask_low)
    kept = inputs.loss_mask & ~outside
    loss = -(kept * inputs.advantages * log_ratio.exp()) + 1e-3 * inputs.loss_mask * log_ratio**2
    return LossOutputs(loss=loss.sum(), metrics={"is_masked": outside[inputs.loss_mask].float().mean()})


class PrimeRlRig(Rig):
    """Two samples a step, packed."""

    inner, config = "clipped", {"clip_low": 0.2, "clip_high": 0.2}

    def __init__(self, inner: str | None = None, config: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        if inner is not None:
            self.inner, self.config = inner, dict(config or {})
        contents = {"LossInputs": LossInputs, "LossOutputs": LossOutputs, "default_loss_fn": default_loss_fn}
        self.install("prime_rl.trainer.rl.loss", **contents)
        settings = lambda **given: SimpleNamespace(**({"dppo_mask_low": 0.2, "dppo_mask_high": 0.2} | given))  # noqa: E731
        self.install("prime_rl.configs.trainer", DefaultLossConfig=settings)
        prime_rl.reset()
        self.weights = torch.nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.SGD([self.weights], lr=0.0)

    def attach(self, url: str = "memory:", job: str = "run") -> None:
        self.environment(TRIMTAB_URL=url, TRIMTAB_JOB=job, TRIMTAB_ATTEMPT="1")
        prime_rl.start()

    def step(self) -> Step:
        batch = self.batch()
        loss = torch.zeros(())
        self.weights.grad = torch.zeros(1)
        new = batch.train
        for row in range(2):
            first = torch.full((1,), math.log(1 / VOCABULARY))
            inputs = LossInputs(
                trainer_logprobs=torch.cat([first, new[row, 1:]]),
                inference_logprobs=torch.cat([torch.zeros(1), batch.rollout[row, 1:]]),
                ref_logprobs=None,
                advantages=batch.advantages[row],
                loss_mask=batch.mask[row].bool(),
            )
            loss = loss + prime_rl.loss(inputs, inner=self.inner, config=self.config).loss
        loss.backward()
        self.optimizer.step()
        self.attachment = prime_rl._PROCESS.attached.made()
        controls = prime_rl._controls(self.config if self.inner == "clipped" else {})
        self.used = {"low": controls.clip_low, "high": controls.clip_high}
        assert batch.shift.grad is not None
        return Step(loss=loss.detach(), gradient=batch.shift.grad)

    def close(self) -> None:
        prime_rl.reset()
        super().close()
