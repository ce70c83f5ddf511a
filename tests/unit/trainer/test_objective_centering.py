"""Score centering in every objective that has it, by exact enumeration of the sampled token over a small vocabulary.

One state: the trainer's logits carry gradient; the sampler and the trainer's old policy are other distributions. The
expectation under the sampler of a gradient is then a sum over the vocabulary, and the term is written out from its
definition, token by token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from trimtab.hooks.centering import TAIL_FLOOR
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.trainer.objective import LossInputs, policy_loss

VOCABULARY = 14
WEIGHTS: dict[str, dict[str, Any]] = {
    "none": {},
    "tis": {"importance": "tis", "importance_low": 0.2, "importance_high": 1.5},
    "mis": {"importance": "mis", "importance_low": 0.5, "importance_high": 2.0},
    "icepop": {"importance": "mis", "importance_low": 0.5, "importance_high": 2.0, "importance_inside": "one"},
}
FULL = {"importance": "tis", "importance_low": 0.0, "importance_high": math.inf}
UNCLIPPED = {"clip_low": 1.0, "clip_high": 100.0}
COMPOSITIONS: dict[str, Controls] = {
    "ppo against the sampler": Controls(ratio_reference="sampler"),
    "ppo against the sampler, dual clip": Controls(ratio_reference="sampler", dual_clip=1.6),
    "cispo against the sampler": Controls(objective="cispo", ratio_reference="sampler"),
}
for _name, _weight in WEIGHTS.items():
    COMPOSITIONS[f"ppo, {_name}"] = Controls(**_weight)
    COMPOSITIONS[f"ppo, dual clip, {_name}"] = Controls(dual_clip=1.6, **_weight)
    COMPOSITIONS[f"cispo, {_name}"] = Controls(objective="cispo", **_weight)
    COMPOSITIONS[f"reinforce, {_name}"] = Controls(objective="reinforce", **_weight)
WITHOUT_DRIFT: dict[str, Controls] = {
    "ppo against the sampler": Controls(ratio_reference="sampler", **UNCLIPPED),
    "cispo against the sampler": Controls(objective="cispo", ratio_reference="sampler", **UNCLIPPED),
    "ppo": Controls(**FULL, **UNCLIPPED),
    "cispo": Controls(objective="cispo", **FULL, **UNCLIPPED),
    "reinforce": Controls(objective="reinforce", **FULL),
}
"""Nothing clipped and nothing truncated: the weighted score has no expectation, and centering nothing to remove."""


@dataclass
class State:
    """One prefix; [V] each, float64."""

    logits: Tensor
    """Trainer's, with gradient."""
    old: Tensor
    """Log-probs of the trainer's old policy."""
    sampler: Tensor
    """Log-probs of the sampler."""

    def gradient(self, token: int, advantage: float, controls: Controls, k: int = VOCABULARY) -> Tensor:
        """[V] of the product's loss for one sampled token, by the logits; the head is the sampler's top k."""
        head = self.sampler.topk(k).indices
        log_p = torch.log_softmax(self.logits, 0)

        def one(values: Tensor) -> Tensor:
            return values[token].view(1, 1)

        inputs = LossInputs(
            train_logprobs=one(log_p),
            old_logprobs=one(self.old),
            rollout_logprobs=one(self.sampler),
            advantages=torch.full((1, 1), advantage, dtype=torch.float64),
            mask=torch.ones(1, 1, dtype=torch.float64),
            train_head_logprobs=log_p[head].view(1, 1, k),
            sampler_head_logprobs=self.sampler[head].view(1, 1, k),
            old_head_logprobs=self.old[head].view(1, 1, k),
        )
        loss = policy_loss(inputs, controls, ClipBounds.nominal(controls)).loss
        return torch.autograd.grad(loss, self.logits)[0]

    def correction(self, token: int, advantage: float, controls: Controls, k: int = VOCABULARY) -> Tensor:
        """[V] what centering adds to that gradient."""
        plain = self.gradient(token, advantage, replace(controls, centering=False), k)
        return self.gradient(token, advantage, replace(controls, centering=True), k) - plain


@pytest.fixture(params=range(3))
def state(request: pytest.FixtureRequest) -> State:
    torch.manual_seed(request.param)
    logits = 1.5 * torch.randn(VOCABULARY, dtype=torch.float64)
    old = torch.log_softmax(logits + 0.3 * torch.randn(VOCABULARY, dtype=torch.float64), 0)
    sampler = torch.log_softmax(old + 0.5 * torch.randn(VOCABULARY, dtype=torch.float64), 0)
    return State(logits=logits.requires_grad_(), old=old, sampler=sampler)


def score_weight(p: float, old: float, q: float, advantage: float, controls: Controls) -> float:
    """What the objective multiplies the score of a token by, besides the advantage, were that token sampled."""
    low, high = 1 - controls.clip_low, 1 + controls.clip_high

    def importance(x: float) -> float:
        if controls.importance == "tis":
            return min(max(x, controls.importance_low), controls.importance_high)
        if controls.importance == "mis":
            inside = controls.importance_low <= x <= controls.importance_high
            return float(inside) if controls.importance_inside == "one" else x * inside
        return 1.0

    if controls.objective == "reinforce":
        return importance(p / q)
    r, w = (p / q, 1.0) if controls.ratio_reference == "sampler" else (p / old, importance(old / q))
    if controls.objective == "cispo":
        return min(max(r, low), high) * w
    return r * w * (r <= high if advantage > 0 else low <= r <= controls.dual_clip)


def drift(state: State, advantage: float, controls: Controls, k: int) -> Tensor:
    """[V] sum_v q_v f_v (e_v - p), the tails of sampler and old policy modelled as multiples of the trainer's."""
    head = state.sampler.topk(k).indices.tolist()
    p = torch.softmax(state.logits.detach(), 0)
    q, old = state.sampler.exp(), state.old.exp()
    tail = [v for v in range(VOCABULARY) if v not in head]
    modelled_q, modelled_old = q.clone(), old.clone()
    for v in tail:
        modelled_q[v] = p[v] * q[tail].sum() / p[tail].sum()
        modelled_old[v] = p[v] * old[tail].sum() / p[tail].sum()
    total = torch.zeros(VOCABULARY, dtype=torch.float64)
    for v in range(VOCABULARY):
        f = score_weight(float(p[v]), float(modelled_old[v]), float(modelled_q[v]), advantage, controls)
        total += modelled_q[v] * f * (torch.eye(VOCABULARY, dtype=torch.float64)[v] - p)
    return total


@pytest.mark.parametrize("advantage", [-1.7, 0.9])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_constant_advantage_has_no_expected_gradient_under_the_sampler(
    state: State, name: str, advantage: float
) -> None:
    centred, plain = replace(COMPOSITIONS[name], centering=True), COMPOSITIONS[name]
    q = state.sampler.exp()
    expected = sum(q[v] * state.gradient(v, advantage, centred) for v in range(VOCABULARY))
    uncentred = sum(q[v] * state.gradient(v, advantage, plain) for v in range(VOCABULARY))
    assert isinstance(expected, Tensor)
    assert isinstance(uncentred, Tensor)
    # A full head leaves a tail of rounding, which the floor turns into 1e-6 of each side.
    assert expected.abs().max() <= 1e-5
    assert uncentred.abs().max() > 1e-3


@pytest.mark.parametrize("advantage", [-1.7, 0.9])
@pytest.mark.parametrize("name", COMPOSITIONS)
@pytest.mark.parametrize("k", [1, 5, VOCABULARY - 1])
def test_the_head_form_is_the_explicit_drift_of_the_modelled_tails(
    state: State, k: int, name: str, advantage: float
) -> None:
    """With one token in the tail, k = V - 1, the modelled tails are the true ones and the term is exact."""
    controls = COMPOSITIONS[name]
    correction = state.correction(0, advantage, controls, k)
    torch.testing.assert_close(correction, advantage * drift(state, advantage, controls, k), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_head_that_leaves_one_token_out_is_exact(state: State, name: str) -> None:
    for advantage in (-1.0, 1.0):
        whole, but_one = (state.correction(3, advantage, COMPOSITIONS[name], k) for k in (VOCABULARY, VOCABULARY - 1))
        torch.testing.assert_close(but_one, whole, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_equal_policies_leave_nothing_to_remove(state: State, name: str) -> None:
    same = torch.log_softmax(state.logits.detach(), 0)
    equal = State(logits=state.logits, old=same, sampler=same)
    for k in (1, 6, VOCABULARY):
        assert equal.correction(2, -1.3, COMPOSITIONS[name], k).abs().max() <= 2 * TAIL_FLOOR


@pytest.mark.parametrize("name", WITHOUT_DRIFT)
def test_without_clipping_and_truncation_the_term_vanishes(state: State, name: str) -> None:
    for k in (1, 6, VOCABULARY):
        for advantage in (-1.3, 1.3):
            assert state.correction(2, advantage, WITHOUT_DRIFT[name], k).abs().max() <= 2 * TAIL_FLOOR


@pytest.mark.parametrize("name", [name for name in COMPOSITIONS if "mis" in name or "icepop" in name or "ppo" in name])
def test_a_token_whose_own_score_is_dropped_still_receives_the_drift_of_its_state(state: State, name: str) -> None:
    controls, dropped = COMPOSITIONS[name], 0
    p, old, q = torch.softmax(state.logits.detach(), 0), state.old.exp(), state.sampler.exp()
    for advantage in (-1.5, 1.5):
        for v in range(VOCABULARY):
            if score_weight(float(p[v]), float(old[v]), float(q[v]), advantage, controls) == 0:
                gradient = state.gradient(v, advantage, replace(controls, centering=True), VOCABULARY - 1)
                expected = advantage * drift(state, advantage, controls, VOCABULARY - 1)
                torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)
                dropped += 1
    assert dropped


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_head_that_covers_everything_stays_finite(name: str) -> None:
    """The masses of the heads round to 1 and beyond, in float32."""
    logits = torch.tensor([60.0, 0.0, -60.0, -90.0], requires_grad=True)
    log_p = torch.log_softmax(logits, 0)
    sampler = torch.log_softmax(logits.detach() + torch.tensor([0.0, 0.5, 3.0, -4.0]), 0)
    old = torch.log_softmax(logits.detach() + torch.tensor([0.0, -0.5, 90.0, 4.0]), 0)
    inputs = LossInputs(
        train_logprobs=log_p[:1].view(1, 1),
        old_logprobs=old[:1].view(1, 1),
        rollout_logprobs=sampler[:1].view(1, 1),
        advantages=torch.ones(1, 1),
        mask=torch.ones(1, 1),
        train_head_logprobs=log_p[:2].view(1, 1, -1),
        sampler_head_logprobs=sampler[:2].view(1, 1, -1),
        old_head_logprobs=old[:2].view(1, 1, -1),
    )
    controls = replace(COMPOSITIONS[name], centering=True)
    loss = policy_loss(inputs, controls, ClipBounds.nominal(controls)).loss
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()
