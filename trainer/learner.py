"""The policy that is trained: a copy of the model, its optimizer, and the updates of a step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.emitter import Emitter
from trimtab.trainer.batch import Batch
from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import TWIN_FORMAT, converted
from trimtab.trainer.objective import LossInputs, policy_loss
from trimtab.trainer.objectives.aggregation import token_weights
from trimtab.trainer.optimizer import optimizer_named
from trimtab.trainer.quant import engine_of, set_backward, set_format
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Weights
from trimtab.trainer.scoring import Scorer, Scores, gathered
from trimtab.trainer.sharding import load_optimizer, load_weights, shard, whole, whole_optimizer, whole_weights
from trimtab.trainer.twin import Twin
from trimtab.trainer.world import World


class Learner:
    """Makes the updates.

    Args:
        config: the run.
        model: the policy to start from; it is copied.
        scorer: how its logits become log-probs.
        twin: the run's; it is shown what it learns from.
        emitter: is told the tensors of every update.
        world: the processes that the model is split over; each computes its share of the rows.
    """

    def __init__(
        self, config: RunConfig, model: nn.Module, scorer: Scorer, twin: Twin, emitter: Emitter, world: World
    ) -> None:
        self.model = converted(model, config, config.controls_at(0).train_format)
        shard(self.model, world)
        self.optimizer = optimizer_named(config.update.optimizer, self.model.parameters(), config.update.lr)
        self._settings = config.update
        self._scorer = scorer
        self._twin = twin
        self._emitter = emitter
        self._world = world
        self.configure(config.controls_at(0))

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.model.parameters()).device

    @property
    def engine(self) -> str:
        """What the quantised layers compute with, such as `nvfp4-emulated`."""
        return engine_of(self.model)

    def configure(self, controls: Controls) -> None:
        """Compute as the controls say from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = self._settings.lr * controls.lr_scale
        set_format(self.model, controls.train_format, bf16_last=controls.bf16_last)
        set_backward(self.model, controls.backward)

    def weights(self) -> Weights:
        """The weights as they are now, whole; the model's own where it is."""
        return whole_weights(self.model)

    def copy(self) -> Weights:
        """A copy of them."""
        return {name: value.clone() for name, value in self.weights().items()}

    def state(self) -> dict[str, Any]:
        """For a checkpoint: what one process would have."""
        return {"model": self.weights(), "optimizer": whole_optimizer(self.optimizer)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's `state`."""
        load_weights(self.model, state["model"])
        load_optimizer(self.optimizer, state["optimizer"])

    def scored(self, rollout: Rollout, first: Tensor) -> tuple[Tensor, Scores]:
        """Scores of a rollout, and the log-probs of the rows `first` with gradient; see `Scorer.scored`."""
        return self._scorer.scored(self.model, rollout, first, self._world)

    def update(
        self, batch: Batch, minibatches: list[Tensor], first: Tensor, controls: Controls, bounds: ClipBounds
    ) -> tuple[list[float], list[float], list[float]]:
        """Every minibatch's update, the log-probs of the first being there already; losses, gradient norms, and how far
        the weights moved."""
        losses, norms, moved = [], [], []
        for index, rows in enumerate(minibatches):
            mine = self._world.share(len(rows))
            part = batch.rows(rows[mine])
            log_p = self._scorer.log_softmax(self.model, part.tokens, part.padding) if index else first
            train_logprobs = gathered(log_p, part.responses)
            inputs = LossInputs(
                train_logprobs=train_logprobs,
                old_logprobs=part.old_logprobs,
                rollout_logprobs=part.rollout_logprobs,
                advantages=part.advantages,
                mask=part.mask,
                reference_logprobs=part.reference_logprobs,
                train_head_logprobs=log_p.gather(2, part.head_ids),
                old_head_logprobs=part.old_head_logprobs,
                sampler_head_logprobs=part.head_logprobs,
                weights=token_weights(batch.mask[rows], controls.aggregation)[mine],
            )
            loss = policy_loss(inputs, controls, bounds)
            shadow = self._shadow_logprobs(part, train_logprobs.detach(), controls)
            self._observe(part, train_logprobs.detach(), shadow)
            if shadow is not None and part.shadow_old_logprobs is not None:
                self._twin.observe(loss, shadow - part.shadow_old_logprobs, part.advantages)
            self.optimizer.zero_grad(set_to_none=True)
            # FSDP takes the mean of the processes' gradients, and theirs sum up to the minibatch's.
            (loss.loss * self._world.size).backward()  # type: ignore[no-untyped-call]
            norm = float(whole(nn.utils.clip_grad_norm_(self.model.parameters(), self._settings.gradient_clip)))
            # Else one bad gradient would be the end of every weight; it is reported instead.
            moved.append(self._stepped() if math.isfinite(norm) else 0.0)
            losses.append(loss.loss.detach())
            norms.append(norm)
        return self._world.sum(torch.stack(losses)).tolist(), norms, moved

    def _stepped(self) -> float:
        """Make the optimizer's step; the norm of what it adds to the weights."""
        before = [parameter.detach().clone() for parameter in self.model.parameters()]
        self.optimizer.step()
        for old, new in zip(before, self.model.parameters(), strict=True):
            old.sub_(new.detach())
        return float(whole(nn.utils.get_total_norm(before)))

    def _shadow_logprobs(self, part: Batch, train_logprobs: Tensor, controls: Controls) -> Tensor | None:
        """[B, T] of the weights being trained as BF16 would compute them; None in a step without the twin."""
        if part.shadow_old_logprobs is None or controls.train_format == TWIN_FORMAT:
            return None if part.shadow_old_logprobs is None else train_logprobs
        return self._twin.logprobs(self.weights(), part)

    def _observe(self, part: Batch, train_logprobs: Tensor, shadow: Tensor | None) -> None:
        """Report the tensors that the loss used."""
        self._emitter.observe(
            train_logprobs=train_logprobs,
            old_logprobs=part.old_logprobs,
            rollout_logprobs=part.rollout_logprobs,
            advantages=part.advantages,
            loss_mask=part.mask,
            entropy=part.entropy,
            shadow_train_logprobs=shadow,
            shadow_old_logprobs=part.shadow_old_logprobs,
        )
