"""The loss of a minibatch, as a pure function of its tensors and the controls in effect.

    loss = sum over tokens of g (-w surrogate + A centering + kl_coef KL)

with g the aggregation's weight of the token, w its importance weight, and the other terms as the modules of
`trimtab.trainer.objectives`, `trimtab.hooks.importance` and `trimtab.hooks.centering_rule` define them. The controls
are read at every call and nothing is kept from one to the next, so each of them is live.

Shapes: B sequences, T response tokens, k head entries; a minibatch is rows of the batch. Gradient flows to the
trainer's log-probs, of the tokens and of the head, only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trimtab.hooks.centering_rule import objective_centering
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.importance import importance_weights
from trimtab.trainer.objectives.aggregation import token_weights
from trimtab.trainer.objectives.divergence import kl_divergence
from trimtab.trainer.objectives.surrogates import cispo_objective, clipped_objective, sequence_log_ratio

_TOKENS = ("train_logprobs", "old_logprobs", "rollout_logprobs", "reference_logprobs", "advantages")
_HEADS = ("train_head_logprobs", "sampler_head_logprobs", "old_head_logprobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """What one minibatch's loss is made of. Anything may stand where the mask is 0. T is the longest that a response
    can be, which `fixed_length` divides by.

    Raises:
        ValueError: advantages or mask have another shape than is told below.
    """

    train_logprobs: Tensor
    """[B, T] with gradient."""
    old_logprobs: Tensor
    """[B, T] recomputed by the trainer before the first update. Read where `ratio_reference` is `recomputed`;
    elsewhere anything of that shape will do."""
    rollout_logprobs: Tensor
    """[B, T] recorded by the sampler. Read where `ratio_reference` is `sampler`, or `importance` is not `none`;
    elsewhere anything of that shape will do."""
    advantages: Tensor
    """[B, T], or [B, 1] where a sequence has one."""
    mask: Tensor
    """[B, T] 1.0 on live tokens."""
    reference_logprobs: Tensor | None = None
    """[B, T] of the reference weights; needed where `kl_coef` is above 0."""
    train_head_logprobs: Tensor | None = None
    """[B, T, k] the trainer's log-probs of the sampler's head, with gradient; needed for score centering."""
    sampler_head_logprobs: Tensor | None = None
    """[B, T, k] the sampler's; needed for score centering."""
    old_head_logprobs: Tensor | None = None
    """[B, T, k] the trainer's before the first update; needed for score centering of a ratio against them."""
    weights: Tensor | None = None
    """[B, T] each token's weight in the loss, where these rows are not the whole minibatch; None: the aggregation's."""

    def __post_init__(self) -> None:
        allowed = (self.mask.shape, (*self.mask.shape[:-1], 1))
        if self.mask.dim() != 2 or self.advantages.shape not in allowed:
            raise ValueError(
                f"advantages: shape {tuple(self.advantages.shape)}, with a mask of {tuple(self.mask.shape)}; give both "
                "as [B, T], or advantages as [B, 1] where a sequence has one"
            )

    def live(self) -> LossInputs:
        """The same with every advantage of shape [B, T] and 0 outside the mask: 0 times infinity is not 0."""
        live = self.mask > 0
        changes: dict[str, Any] = {}
        for names, kept in ((_TOKENS, live), (_HEADS, live.unsqueeze(-1))):
            for name in names:
                value = getattr(self, name)
                if value is not None:
                    changes[name] = torch.where(kept, value, 0.0)
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A minibatch's loss, and what calibrated clipping learns from; all but `loss` without gradient."""

    loss: Tensor
    """Scalar to minimise."""
    log_ratio: Tensor
    """[B, T] train against the denominator that `controls.ratio_reference` names, nats; 0 outside the mask."""
    weights: Tensor
    """[B, T] how much each token's surrogate counts in the loss: aggregation times importance; 0 outside the mask."""


def policy_loss(inputs: LossInputs, controls: Controls, bounds: ClipBounds) -> Loss:
    """The loss of one minibatch.

    The ratio r is train against the denominator that `controls.ratio_reference` names. `controls.importance` weights
    recomputed log-probs against the sampler's; `reinforce` has no ratio, and there it weights train against sampler.

    Args:
        inputs: the minibatch.
        controls: what to compute; every field may differ from call to call.
        bounds: where r is clipped, `ClipBounds.nominal(controls)` or calibrated ones; `reinforce` does not look.

    Raises:
        ValueError: the controls contradict each other, or need a tensor that the inputs do not hold.
        TypeError: `bounds` are no `ClipBounds`.
    """
    if not isinstance(bounds, ClipBounds):
        raise TypeError(f"bounds: {bounds!r} is no ClipBounds(low=..., high=...), whose sides are logarithms of ratios")
    conflict = controls.conflict()
    if conflict is not None:
        raise ValueError(conflict[1])
    inputs = inputs.live()
    log_ratio = inputs.train_logprobs - _denominator(inputs, controls)
    weights = token_weights(inputs.mask, controls.aggregation) if inputs.weights is None else inputs.weights
    policy_weights = weights * _importance(inputs, controls)
    loss = -(policy_weights * _surrogate(inputs, log_ratio, controls, bounds)).sum()
    if controls.centering:
        loss = loss + (weights * inputs.advantages * _centering_term(inputs, controls, bounds)).sum()
    if controls.kl_coef > 0:
        loss = loss + controls.kl_coef * (weights * _kl(inputs, controls)).sum()
    return Loss(loss=loss, log_ratio=log_ratio.detach(), weights=policy_weights)


def _denominator(inputs: LossInputs, controls: Controls) -> Tensor:
    return inputs.rollout_logprobs if controls.ratio_reference == "sampler" else inputs.old_logprobs


def _importance(inputs: LossInputs, controls: Controls) -> Tensor:
    """[B, T] w."""
    numerator = inputs.train_logprobs if controls.objective == "reinforce" else inputs.old_logprobs
    return importance_weights(numerator - inputs.rollout_logprobs, inputs.mask, controls)


def _surrogate(inputs: LossInputs, log_ratio: Tensor, controls: Controls, bounds: ClipBounds) -> Tensor:
    """[B, T] what is maximised."""
    if controls.objective == "reinforce":
        return inputs.advantages * inputs.train_logprobs
    if controls.objective == "cispo":
        return cispo_objective(log_ratio, inputs.train_logprobs, inputs.advantages, bounds)
    if controls.objective == "gspo":
        log_ratio = sequence_log_ratio(inputs.train_logprobs, _denominator(inputs, controls), inputs.mask)
    return clipped_objective(log_ratio, inputs.advantages, bounds, controls.dual_clip)


def _centering_term(inputs: LossInputs, controls: Controls, bounds: ClipBounds) -> Tensor:
    """[B, T] the sampler's expectation of the weight that the surrogate gives a score, times that score."""
    train, sampler = inputs.train_head_logprobs, inputs.sampler_head_logprobs
    if train is None or sampler is None:
        raise ValueError("centering: on, but the rollouts recorded no head; set rollout.head > 0")
    return objective_centering(
        train,
        sampler,
        controls=controls,
        bounds=bounds,
        advantages=inputs.advantages,
        old_head_logprobs=inputs.old_head_logprobs,
    ).term


def _kl(inputs: LossInputs, controls: Controls) -> Tensor:
    if inputs.reference_logprobs is None:
        raise ValueError(
            f"kl_coef: {controls.kl_coef:g}, but there are no reference_logprobs; keep reference weights, or set 0"
        )
    return kl_divergence(inputs.train_logprobs, inputs.reference_logprobs, controls.kl_estimator)
