"""The policy that is trained: a copy of the model, its optimizer, and the updates of a step."""

from __future__ import annotations

import math

from torch import Tensor, nn

from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.emitter import Emitter
from trimtab.trainer.batch import Batch
from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import TWIN_FORMAT, converted
from trimtab.trainer.objective import LossInputs, policy_loss
from trimtab.trainer.optimizer import optimizer_named
from trimtab.trainer.quant import engine_of, set_backward, set_format
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Weights
from trimtab.trainer.scoring import Scorer, Scores, gathered
from trimtab.trainer.twin import Twin


class Learner:
    """Makes the updates.

    Args:
        config: the run.
        model: the policy to start from; it is copied.
        scorer: how its logits become log-probs.
        twin: the run's; it is shown what it learns from.
        emitter: is told the tensors of every update.
    """

    def __init__(self, config: RunConfig, model: nn.Module, scorer: Scorer, twin: Twin, emitter: Emitter) -> None:
        self.model = converted(model, config, config.controls_at(0).train_format)
        self.optimizer = optimizer_named(config.update.optimizer, self.model.parameters(), config.update.lr)
        self._settings = config.update
        self._scorer = scorer
        self._twin = twin
        self._emitter = emitter

    @property
    def engine(self) -> str:
        """What the quantised layers compute with, such as `nvfp4-emulated`."""
        return engine_of(self.model)

    def configure(self, controls: Controls) -> None:
        """Compute as the controls say from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = self._settings.lr * controls.lr_scale
        set_format(self.model, controls.train_format)
        set_backward(self.model, controls.backward)

    def weights(self) -> Weights:
        """A copy of the weights as they are now."""
        return copied(self.model)

    def scored(self, rollout: Rollout, first: Tensor) -> tuple[Tensor, Scores]:
        """Scores of a rollout, and the log-probs of the rows `first` with gradient; see `Scorer.scored`."""
        return self._scorer.scored(self.model, rollout, first)

    def update(
        self, batch: Batch, minibatches: list[Tensor], first: Tensor, controls: Controls, bounds: ClipBounds
    ) -> tuple[list[float], list[float]]:
        """Every minibatch's update, the log-probs of the first being there already; losses and gradient norms."""
        losses, norms = [], []
        for index, rows in enumerate(minibatches):
            part = batch.rows(rows)
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
            )
            loss = policy_loss(inputs, controls, bounds)
            shadow = self._shadow_logprobs(part, train_logprobs.detach(), controls)
            self._observe(part, train_logprobs.detach(), shadow)
            if shadow is not None and part.shadow_old_logprobs is not None:
                self._twin.observe(loss, shadow - part.shadow_old_logprobs, part.advantages)
            self.optimizer.zero_grad(set_to_none=True)
            loss.loss.backward()  # type: ignore[no-untyped-call]
            norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self._settings.gradient_clip))
            if math.isfinite(norm):  # else one bad gradient would be the end of every weight; it is reported instead
                self.optimizer.step()
            losses.append(float(loss.loss.detach()))
            norms.append(norm)
        return losses, norms

    def _shadow_logprobs(self, part: Batch, train_logprobs: Tensor, controls: Controls) -> Tensor | None:
        """[B, T] of the weights being trained as BF16 would compute them; None in a step without the twin."""
        if part.shadow_old_logprobs is None or controls.train_format == TWIN_FORMAT:
            return None if part.shadow_old_logprobs is None else train_logprobs
        return self._twin.logprobs(self.model.state_dict(), part)

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


def copied(model: nn.Module) -> Weights:
    """A copy of a model's weights."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
