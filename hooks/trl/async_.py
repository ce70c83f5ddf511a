"""TRL's AsyncGRPOTrainer, ridden: packed rows, a ratio against the sampler, clip bounds that are read at every loss.

Its loss keeps the new log-probs to itself, so they are caught where the model returns them: the class of its output is
TRL's own, with `log_probs` and `entropy`, and every call of the loss makes exactly one such.
"""

from __future__ import annotations

from typing import Any

import torch

from trimtab.hooks.attachment import Attachment
from trimtab.hooks.controls import Controls
from trimtab.hooks.trl.grad_norm import GradNorm
from trimtab.hooks.trl.metrics import STALENESS, NewMetrics
from trimtab.hooks.trl.patches import Patches


class AsyncRide:
    """What the wrappers of one trainer share from call to call."""

    attachment: Attachment

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self._metrics, self._grad_norm = NewMetrics(), GradNorm()
        self._outputs: Any = None
        self._losses: list[float] = []

    def wrap(self, patches: Patches) -> None:
        """Put the wrappers on."""
        patches.wrap(self.trainer, "compute_loss", self._compute_loss)
        patches.wrap(self.trainer, "_get_grad_norm", self._get_grad_norm)

    def end_step(self, step: int) -> Controls:
        """Report the optimizer step that has just ended."""
        scalars = self.attachment.tried("metrics", self._scalars) or {}
        staleness = scalars.pop(STALENESS, None)
        version = self.trainer.model_version
        controls = self.attachment.end_step(step=step, scalars=scalars, policy_version=version, staleness=staleness)
        self._losses = []
        return controls

    def _scalars(self) -> dict[str, float | None]:
        found: dict[str, float | None] = {**self._metrics.scalars(self.trainer._metrics["train"])}
        if self._losses:
            found["loss"] = sum(self._losses)
        return found | {"grad_norm": self._grad_norm.taken()}

    def _compute_loss(self, compute_loss: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not (self.attachment.attached and torch.is_grad_enabled()):
            return compute_loss(model, inputs, *args, **kwargs)
        self._outputs = None
        loss = compute_loss(_Overheard(model, self), inputs, *args, **kwargs)
        with self.attachment.safely("compute_loss"):
            self._observe(inputs)
            # TRL has just waited for the device, to log its metrics: what was computed before them is there.
            self._losses.append(float(loss.detach()))
            self._grad_norm.settle()
        self._outputs = None
        return loss

    def hear(self, outputs: Any) -> None:
        """What the model has returned to the loss."""
        self._outputs = outputs

    def _observe(self, inputs: Any) -> None:
        selected = inputs["token_index"] >= 0
        index = inputs["token_index"][selected]
        sampler = inputs["old_log_probs"][selected]
        self.attachment.emitter.observe(
            train_logprobs=self._outputs.log_probs.detach().flatten()[index],
            rollout_logprobs=sampler,
            advantages=inputs["advantages"][selected],
            loss_mask=torch.ones_like(sampler),  # every selected token is in the loss
            entropy=self._outputs.entropy.detach().flatten()[index],
        )

    def _get_grad_norm(self, get_grad_norm: Any, *args: Any, **kwargs: Any) -> Any:
        norm = get_grad_norm(*args, **kwargs)
        with self.attachment.safely("grad_norm"):
            self._grad_norm.heard(norm)
        return norm


class _Overheard:
    """The model, for one loss call: everything is passed on, and what it returns is heard."""

    def __init__(self, model: Any, ride: AsyncRide) -> None:
        self._model, self._ride = model, ride

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self._model(*args, **kwargs)
        self._ride.hear(outputs)
        return outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
