"""Score centering against explicit sums over the whole vocabulary, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from trimtab.hooks.centering import TAIL_FLOOR, score_centering
from trimtab.hooks.importance import WeightRule, masked, ppo_shaped, truncated, unweighted

VOCABULARY = 24
FULL_IMPORTANCE: WeightRule = torch.exp
RULES: dict[str, WeightRule] = {
    "none": unweighted,
    "tis": truncated(0.0, 2.0),
    "mis": masked(0.5, 2.0),
    "full": FULL_IMPORTANCE,
}


@pytest.fixture(params=range(3))
def policies(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor]:
    """Trainer logits (with gradient) and sampler log-probs over the vocabulary, fresh for each seed."""
    torch.manual_seed(request.param)
    logits = (2.0 * torch.randn(VOCABULARY, dtype=torch.float64)).requires_grad_()
    sampler = torch.log_softmax(logits.detach() + 0.6 * torch.randn(VOCABULARY, dtype=torch.float64), 0)
    return logits, sampler


def centering_gradient(logits: Tensor, sampler: Tensor, head: Tensor, rule: WeightRule) -> Tensor:
    """Gradient of the product's term, head `head`, with respect to the logits."""
    log_p = torch.log_softmax(logits, 0)
    term = score_centering(log_p[head].view(1, 1, -1), sampler[head].view(1, 1, -1), rule).term
    (gradient,) = torch.autograd.grad(term.sum(), logits)
    return gradient


def explicit_drift(logits: Tensor, sampler_probs: Tensor, rule: WeightRule) -> Tensor:
    """sum_v q_v f(p_v/q_v) (e_v - p), token by token."""
    p = torch.softmax(logits.detach(), 0)
    drift = torch.zeros_like(p)
    for v in range(len(p)):
        weight = rule((p[v] / sampler_probs[v]).log())
        one_hot = torch.zeros_like(p)
        one_hot[v] = 1.0
        drift += sampler_probs[v] * weight * (one_hot - p)
    return drift


@pytest.mark.parametrize("name", RULES)
def test_expected_gradient_under_the_sampler_is_zero_for_a_constant_advantage(
    policies: tuple[Tensor, Tensor], name: str
) -> None:
    """E_q[A (w_a s_a) - A mu_w] = 0 to 1e-6 of its parts, with the full head."""
    logits, sampler = policies
    rule = RULES[name]
    advantage = -1.7
    log_p = torch.log_softmax(logits, 0)
    expected = torch.zeros(VOCABULARY, dtype=torch.float64)
    for token in range(VOCABULARY):
        weight = rule((log_p[token] - sampler[token]).detach())
        term = score_centering(log_p.view(1, 1, -1), sampler.view(1, 1, -1), rule).term.sum()
        loss = -advantage * weight * log_p[token] + advantage * term
        (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
        expected += sampler[token].exp() * gradient
    uncentred = abs(advantage) * explicit_drift(logits, sampler.exp(), unweighted).norm()
    assert expected.norm() <= 1e-6 * uncentred


@pytest.mark.parametrize("name", RULES)
def test_full_head_is_the_exact_drift(policies: tuple[Tensor, Tensor], name: str) -> None:
    logits, sampler = policies
    everything = torch.arange(VOCABULARY)
    gradient = centering_gradient(logits, sampler, everything, RULES[name])
    torch.testing.assert_close(gradient, explicit_drift(logits, sampler.exp(), RULES[name]), rtol=1e-9, atol=1e-12)


def test_without_a_rule_the_drift_in_logit_space_is_q_minus_p(policies: tuple[Tensor, Tensor]) -> None:
    logits, sampler = policies
    gradient = centering_gradient(logits, sampler, torch.arange(VOCABULARY), unweighted)
    torch.testing.assert_close(gradient, sampler.exp() - torch.softmax(logits.detach(), 0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_all_but_one_token_in_the_head_equals_the_exact_form(policies: tuple[Tensor, Tensor], name: str) -> None:
    """With one token in the tail the modelled tail is the true one."""
    logits, sampler = policies
    head = sampler.topk(VOCABULARY - 1).indices
    gradient = centering_gradient(logits, sampler, head, RULES[name])
    torch.testing.assert_close(gradient, explicit_drift(logits, sampler.exp(), RULES[name]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("k", [1, 4, 12])
def test_head_form_equals_the_explicit_modelled_tail(policies: tuple[Tensor, Tensor], name: str, k: int) -> None:
    """The folded tail is the drift of q_hat, which is q on the head and rho p off it."""
    logits, sampler = policies
    head = sampler.topk(k).indices
    p, q = torch.softmax(logits.detach(), 0), sampler.exp()
    rho = (1 - q[head].sum()) / (1 - p[head].sum())
    modelled = rho * p
    modelled[head] = q[head]
    gradient = centering_gradient(logits, sampler, head, RULES[name])
    torch.testing.assert_close(gradient, explicit_drift(logits, modelled, RULES[name]), rtol=1e-9, atol=1e-12)


def test_equal_policies_leave_nothing(policies: tuple[Tensor, Tensor]) -> None:
    logits, _ = policies
    same = torch.log_softmax(logits.detach(), 0)
    for k in (1, 8, VOCABULARY):
        head = same.topk(k).indices
        log_p = torch.log_softmax(logits, 0)[head].view(1, 1, -1)
        centering = score_centering(log_p, same[head].view(1, 1, -1))
        assert centering.total_variation.item() == pytest.approx(0.0, abs=1e-12)
        # Over a full head the coefficients are a multiple of p, whose gradient vanishes though the value need not.
        (gradient,) = torch.autograd.grad(centering.term.sum(), logits)
        assert gradient.abs().max().item() <= 1e-6


def test_full_importance_sampling_makes_centering_a_no_op(policies: tuple[Tensor, Tensor]) -> None:
    logits, sampler = policies
    for k in (3, VOCABULARY):
        gradient = centering_gradient(logits, sampler, sampler.topk(k).indices, FULL_IMPORTANCE)
        assert gradient.abs().max().item() <= 1e-6


def test_a_head_that_covers_everything_stays_finite() -> None:
    """Q_H and P_H round to 1 and beyond: the floors keep value and gradient finite and the gradient negligible."""
    logits = torch.tensor([60.0, 0.0, -60.0, -90.0], requires_grad=True)
    log_p = torch.log_softmax(logits, 0)
    sampler = torch.log_softmax(logits.detach() + torch.tensor([0.0, 0.5, 3.0, -4.0]), 0)
    for rule in RULES.values():
        centering = score_centering(log_p[:2].view(1, 1, -1), sampler[:2].view(1, 1, -1), rule)
        (gradient,) = torch.autograd.grad(centering.term.sum(), logits, retain_graph=True)
        assert torch.isfinite(centering.term).all()
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max().item() <= 2 * TAIL_FLOOR


@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_ppo_shaped_rule_integrates_only_unclipped_tokens(policies: tuple[Tensor, Tensor], advantage: float) -> None:
    logits, sampler = policies
    low, high = math.log(0.8), math.log(1.2)
    rule = ppo_shaped(low, high, torch.tensor(advantage))
    p, q = torch.softmax(logits.detach(), 0), sampler.exp()
    drift = torch.zeros(VOCABULARY, dtype=torch.float64)
    for v in range(VOCABULARY):
        clipped = p[v] / q[v] > 1.2 if advantage > 0 else p[v] / q[v] < 0.8
        if not clipped:
            one_hot = torch.zeros(VOCABULARY, dtype=torch.float64)
            one_hot[v] = 1.0
            drift += p[v] * (one_hot - p)
    gradient = centering_gradient(logits, sampler, torch.arange(VOCABULARY), rule)
    torch.testing.assert_close(gradient, drift, rtol=1e-9, atol=1e-12)


def test_total_variation_of_a_full_head_is_exact(policies: tuple[Tensor, Tensor]) -> None:
    logits, sampler = policies
    log_p = torch.log_softmax(logits.detach(), 0)
    centering = score_centering(log_p.view(1, 1, -1), sampler.view(1, 1, -1))
    expected = 0.5 * sum(abs(float(a.exp() - b.exp())) for a, b in zip(sampler, log_p, strict=True))
    assert centering.total_variation.item() == pytest.approx(expected, abs=1e-12)


def test_heads_of_different_shape_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="train_head_logprobs: shape"):
        score_centering(torch.zeros(1, 2, 4), torch.zeros(1, 2, 5))
    with pytest.raises(ValueError, match="old_head_logprobs: shape"):
        score_centering(torch.zeros(1, 2, 5), torch.zeros(1, 2, 5), old_head_logprobs=torch.zeros(1, 2, 4))


def test_tokens_that_neither_policy_can_take_change_nothing() -> None:
    """Masked logits: -inf on both sides."""
    torch.manual_seed(7)
    logits = torch.randn(6, dtype=torch.float64, requires_grad=True)
    sampler = torch.log_softmax(torch.randn(6, dtype=torch.float64), 0)
    banned = torch.full((2,), -math.inf, dtype=torch.float64)
    for rule in (unweighted, truncated(0.2, 2.0), masked(0.5, 2.0)):
        for old in (None, sampler):
            found = []
            for tail in (torch.empty(0, dtype=torch.float64), banned):
                log_p = torch.log_softmax(torch.cat((logits, tail)), 0)
                heads = [torch.cat((head, tail)).view(1, 1, -1) for head in (sampler, *(() if old is None else (old,)))]
                third = heads[1] if old is not None else None
                centering = score_centering(log_p.view(1, 1, -1), heads[0], rule, old_head_logprobs=third)
                (gradient,) = torch.autograd.grad(centering.term.sum(), logits)
                found.append((centering.term.detach(), centering.total_variation, gradient))
            for without, with_banned in zip(*found, strict=True):
                torch.testing.assert_close(with_banned, without)
