"""Centering for every objective, by exact enumeration: what a token's loss pulls on average under the sampler is gone.

The loss here is autograd's of the objective as it is written down, none of the product's weight rules.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from trimtab.hooks.centering_rule import objective_centering
from trimtab.hooks.controls import ClipBounds, Controls

VOCABULARY = 11
WEIGHTS: dict[str, dict[str, Any]] = {
    "none": {},
    "tis": {"importance": "tis", "importance_low": 0.3, "importance_high": 1.4},
    "mis": {"importance": "mis", "importance_low": 0.6, "importance_high": 1.8},
    "icepop": {"importance": "mis", "importance_low": 0.6, "importance_high": 1.8, "importance_inside": "one"},
}
CASES = [
    Controls(objective=objective, ratio_reference=reference, dual_clip=dual, **weight)  # type: ignore[arg-type]
    for objective, reference, dual, weight in itertools.product(
        ("ppo", "cispo", "reinforce"), ("sampler", "recomputed"), (math.inf, 1.5), WEIGHTS.values()
    )
]
POSSIBLE = [case for case in CASES if case.conflict() is None]
ADVANTAGES = (-1.4, 0.8)


def token_loss(log_p: Tensor, log_old: Tensor, log_q: Tensor, advantage: float, controls: Controls) -> Tensor:
    """Of one sampled token, from its log-probs."""
    importance = ((log_p.detach() if controls.objective == "reinforce" else log_old) - log_q).exp()
    inside = (importance >= controls.importance_low) & (importance <= controls.importance_high)
    weight = {
        "none": torch.ones(()),
        "tis": importance.clamp(controls.importance_low, controls.importance_high),
        "mis": inside * (1.0 if controls.importance_inside == "one" else importance),
    }[controls.importance]
    ratio = (log_p - (log_q if controls.ratio_reference == "sampler" else log_old)).exp()
    clipped = ratio.clamp(1 - controls.clip_low, 1 + controls.clip_high)
    if controls.objective == "reinforce":
        objective = advantage * log_p
    elif controls.objective == "cispo":
        objective = clipped.detach() * advantage * log_p
    else:
        objective = torch.minimum(ratio * advantage, clipped * advantage)
        if advantage < 0 and objective < controls.dual_clip * advantage:
            objective = torch.full((), controls.dual_clip * advantage) + 0.0 * log_p
    return -weight * objective


@pytest.fixture(params=range(2))
def policies(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor, Tensor]:
    """Trainer logits with gradient, and log-probs of old policy and sampler; [V] each."""
    torch.manual_seed(request.param)
    logits = 1.5 * torch.randn(VOCABULARY, dtype=torch.float64)
    old = torch.log_softmax(logits + 0.3 * torch.randn(VOCABULARY, dtype=torch.float64), 0)
    sampler = torch.log_softmax(old + 0.5 * torch.randn(VOCABULARY, dtype=torch.float64), 0)
    return logits.requires_grad_(), old, sampler


def expected(policies: tuple[Tensor, Tensor, Tensor], advantage: float, controls: Controls, *, centred: bool) -> Tensor:
    """[V] the gradient by the logits of a constant advantage, on average under the sampler; the head is whole."""
    logits, old, sampler = policies
    total = torch.zeros(VOCABULARY, dtype=torch.float64)
    for token in range(VOCABULARY):
        log_p = torch.log_softmax(logits, 0)
        loss = token_loss(log_p[token], old[token], sampler[token], advantage, controls)
        if centred:
            term = objective_centering(
                log_p.view(1, 1, -1),
                sampler.view(1, 1, -1),
                controls=controls,
                bounds=ClipBounds.nominal(controls),
                advantages=torch.full((1, 1), advantage, dtype=torch.float64),
                old_head_logprobs=old.view(1, 1, -1) if controls.ratio_reference == "recomputed" else None,
            ).term
            loss = loss + advantage * term.squeeze()
        total += sampler[token].exp() * torch.autograd.grad(loss, logits)[0]
    return total


@pytest.mark.parametrize("advantage", ADVANTAGES)
@pytest.mark.parametrize("controls", POSSIBLE, ids=str)
def test_the_drift_of_every_objective_and_reference_is_removed(
    policies: tuple[Tensor, Tensor, Tensor], controls: Controls, advantage: float
) -> None:
    assert expected(policies, advantage, controls, centred=False).abs().max() > 1e-3
    # A full head leaves a tail of rounding, which the floor turns into 1e-6 of each side.
    assert expected(policies, advantage, controls, centred=True).abs().max() <= 1e-5


@pytest.mark.parametrize(
    "controls", [case for case in CASES if case.conflict() is not None] + [Controls(objective="gspo")]
)
def test_controls_that_allow_no_term_are_refused_with_their_own_reason(controls: Controls) -> None:
    head = torch.zeros(1, 1, 3)
    with pytest.raises(ValueError, match=r"would weight nothing|needs a weight for each token"):
        objective_centering(
            head, head, controls=controls, bounds=ClipBounds.nominal(controls), advantages=torch.ones(1, 1)
        )


def test_a_ratio_against_the_old_policy_needs_its_head() -> None:
    head = torch.zeros(1, 1, 3)
    with pytest.raises(ValueError, match=r"old_head_logprobs, .* are missing; .* set ratio_reference to sampler"):
        objective_centering(
            head, head, controls=Controls(), bounds=ClipBounds.nominal(Controls()), advantages=torch.ones(1, 1)
        )
