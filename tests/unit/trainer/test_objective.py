"""The loss and its gradient against plain loops over tokens, for every objective, aggregation, weight and penalty."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.trainer.objective import LossInputs, policy_loss
from trimtab.trainer.objectives.divergence import MAX_K3
from trimtab.trainer.objectives.surrogates import clipped_objective

NOMINAL = ClipBounds.nominal(Controls())
IMPORTANCE: dict[str, dict[str, Any]] = {
    "none": {},
    "tis": {"importance": "tis", "importance_low": 0.3, "importance_high": 2.0},
    "mis": {"importance": "mis", "importance_low": 0.5, "importance_high": 2.0},
    "icepop": {"importance": "mis", "importance_low": 0.5, "importance_high": 2.0, "importance_inside": "one"},
    "sequence tis": {"importance": "tis", "importance_high": 3.0, "importance_level": "sequence"},
    "geometric mis": {"importance": "mis", "importance_low": 0.6, "importance_level": "geometric"},
}


def inputs(seed: int, vocabulary: int = 7, head: int = 4) -> LossInputs:
    """Four sequences of at most six tokens, the last of which has none; leaves with gradient."""
    generator = torch.Generator().manual_seed(seed)

    def logprobs() -> Tensor:
        return torch.log_softmax(torch.randn(4, 6, vocabulary, generator=generator, dtype=torch.float64), -1)

    train, old, rollout, reference = logprobs(), logprobs(), logprobs(), logprobs()
    tokens = torch.randint(0, vocabulary, (4, 6, 1), generator=generator)
    top = rollout.topk(head, -1)
    mask = (torch.rand(4, 6, generator=generator) < 0.8).double()
    mask[:3, 0], mask[3] = 1.0, 0.0
    return LossInputs(
        train_logprobs=train.gather(2, tokens)[..., 0].requires_grad_(),
        old_logprobs=old.gather(2, tokens)[..., 0],
        rollout_logprobs=rollout.gather(2, tokens)[..., 0],
        reference_logprobs=reference.gather(2, tokens)[..., 0],
        advantages=torch.tensor([[1.3], [-0.7], [0.0], [0.4]], dtype=torch.float64),
        mask=mask,
        train_head_logprobs=train.gather(2, top.indices).requires_grad_(),
        sampler_head_logprobs=top.values,
        old_head_logprobs=old.gather(2, top.indices),
    )


@dataclass
class Token:
    """One live token's log-probs, and the total of its sequence and how many there are."""

    row: int
    column: int
    train: float
    old: float
    rollout: float
    reference: float
    advantage: float


def live_tokens(batch: LossInputs) -> list[list[Token]]:
    assert batch.reference_logprobs is not None
    return [
        [
            Token(
                row=row,
                column=column,
                train=float(batch.train_logprobs[row, column].detach()),
                old=float(batch.old_logprobs[row, column]),
                rollout=float(batch.rollout_logprobs[row, column]),
                reference=float(batch.reference_logprobs[row, column]),
                advantage=float(batch.advantages[row, 0]),
            )
            for column in range(batch.mask.shape[1])
            if batch.mask[row, column]
        ]
        for row in range(len(batch.mask))
    ]


def denominator(token: Token, controls: Controls) -> float:
    return token.rollout if controls.ratio_reference == "sampler" else token.old


def importance(token: Token, sequence: list[Token], controls: Controls) -> float:
    def ratio(of: Token) -> float:
        return math.exp((of.train if controls.objective == "reinforce" else of.old) - of.rollout)

    if controls.importance == "none" or (controls.objective != "reinforce" and controls.ratio_reference == "sampler"):
        return 1.0
    x = ratio(token)
    if controls.importance_level != "token":
        x = math.prod(ratio(of) for of in sequence)
    if controls.importance_level == "geometric":
        x = x ** (1 / len(sequence))
    low, high = controls.importance_low, controls.importance_high
    if controls.importance == "tis":
        return min(max(x, low), high)
    if not low <= x <= high:
        return 0.0
    return 1.0 if controls.importance_inside == "one" else x


def surrogate(token: Token, sequence: list[Token], controls: Controls) -> tuple[float, float]:
    """Value of one token, and its derivative by the token's log-prob."""
    a, low, high = token.advantage, 1 - controls.clip_low, 1 + controls.clip_high
    if controls.objective == "reinforce":
        return a * token.train, a
    r = math.exp(token.train - denominator(token, controls))
    if controls.objective == "cispo":
        return min(max(r, low), high) * a * token.train, min(max(r, low), high) * a
    if controls.objective == "gspo":
        r = math.prod(math.exp(of.train - denominator(of, controls)) for of in sequence) ** (1 / len(sequence))
    value = min(r * a, min(max(r, low), high) * a)
    flows = r <= high if a > 0 else r >= low
    if a < 0 and value < controls.dual_clip * a:
        value, flows = controls.dual_clip * a, False
    return value, r * a if flows else 0.0


def divergence(token: Token, controls: Controls) -> tuple[float, float]:
    d = token.reference - token.train
    if controls.kl_estimator == "k1":
        return -d, 1.0
    if controls.kl_estimator == "k2":
        return d * d / 2, -d
    k3 = math.exp(d) - 1 - d
    return (k3, 1 - math.exp(d)) if k3 < MAX_K3 else (MAX_K3, 0.0)


def loop(batch: LossInputs, controls: Controls) -> tuple[float, list[list[float]]]:
    """The loss, and its gradient by each log-prob."""
    sequences = live_tokens(batch)
    rows, width = batch.mask.shape
    total, gradient = 0.0, [[0.0] * width for _ in range(rows)]
    for sequence in sequences:
        for token in sequence:
            g = {
                "token_mean": 1 / sum(len(each) for each in sequences),
                "sequence_mean": 1 / (rows * len(sequence)),
                "fixed_length": 1 / (rows * width),
            }[controls.aggregation]
            value, slope = surrogate(token, sequence, controls)
            w = importance(token, sequence, controls)
            kl, kl_slope = divergence(token, controls) if controls.kl_coef else (0.0, 0.0)
            total += g * (-w * value + controls.kl_coef * kl)
            gradient[token.row][token.column] = g * (-w * slope + controls.kl_coef * kl_slope)
    return total, gradient


@pytest.mark.parametrize("weight", IMPORTANCE)
@pytest.mark.parametrize("reference", ["sampler", "recomputed"])
@pytest.mark.parametrize("objective", ["ppo", "gspo", "cispo", "reinforce"])
def test_loss_and_gradient_equal_a_loop_over_tokens(objective: str, reference: str, weight: str) -> None:
    if Controls(objective=objective, ratio_reference=reference, **IMPORTANCE[weight]).conflict():  # type: ignore[arg-type]
        pytest.skip("refused: see the contradictions below")
    penalties: list[dict[str, Any]] = [{}, *({"kl_coef": 0.3, "kl_estimator": k} for k in ("k1", "k2", "k3"))]
    aggregations = ("token_mean", "sequence_mean", "fixed_length")
    for case, (aggregation, dual, penalty) in enumerate(itertools.product(aggregations, (math.inf, 1.5), penalties)):
        batch = inputs(1000 * case + sum(map(ord, objective + reference + weight)))
        chosen = {"objective": objective, "ratio_reference": reference, "aggregation": aggregation, "dual_clip": dual}
        controls = Controls(**chosen, clip_high=0.28, **penalty, **IMPORTANCE[weight])  # type: ignore[arg-type]
        loss = policy_loss(batch, controls, ClipBounds.nominal(controls)).loss
        (gradient,) = torch.autograd.grad(loss, batch.train_logprobs)
        expected, expected_gradient = loop(batch, controls)
        assert loss.item() == pytest.approx(expected, rel=1e-9), controls
        torch.testing.assert_close(gradient, torch.tensor(expected_gradient, dtype=torch.float64), msg=str(controls))


@pytest.mark.parametrize(
    ("ratio", "advantage", "flows"),
    [(1.3, 1.0, False), (1.3, -1.0, True), (0.7, 1.0, True), (0.7, -1.0, False), (1.0, 1.0, True), (1.0, -1.0, True)],
)
def test_gradient_flows_exactly_where_ppo_does_not_clip(ratio: float, advantage: float, flows: bool) -> None:
    log_ratio = torch.tensor(math.log(ratio), requires_grad=True)
    clipped_objective(log_ratio, torch.tensor(advantage), NOMINAL).backward()
    assert log_ratio.grad is not None
    assert log_ratio.grad.item() == pytest.approx(ratio * advantage if flows else 0.0)


@pytest.mark.parametrize(("ratio", "advantage", "flows"), [(2.9, -1.0, True), (3.1, -1.0, False), (0.9, -1.0, True)])
def test_dual_clip_stops_the_punishment_of_a_token_that_became_likelier(
    ratio: float, advantage: float, flows: bool
) -> None:
    log_ratio = torch.tensor(math.log(ratio), requires_grad=True)
    value = clipped_objective(log_ratio, torch.tensor(advantage), NOMINAL, dual_clip=3.0)
    value.backward()
    assert log_ratio.grad is not None
    assert value.item() == pytest.approx(max(-ratio, -3.0))
    assert log_ratio.grad.item() == pytest.approx(-ratio if flows else 0.0)


def test_the_weights_and_the_ratio_of_a_loss_are_those_it_used() -> None:
    batch = inputs(5)
    controls = Controls(aggregation="sequence_mean", **IMPORTANCE["tis"])
    loss = policy_loss(batch, controls, NOMINAL)
    ratio = batch.train_logprobs.detach() - batch.old_logprobs
    for row, sequence in enumerate(live_tokens(batch)):
        for token in sequence:
            expected = importance(token, sequence, controls) / (4 * len(sequence))
            assert loss.weights[row, token.column].item() == pytest.approx(expected, rel=1e-12)
            assert loss.log_ratio[row, token.column] == ratio[row, token.column]
    assert torch.equal(loss.weights * (batch.mask == 0), torch.zeros(4, 6))
    assert not loss.weights.requires_grad
    assert not loss.log_ratio.requires_grad


def test_a_divergence_beyond_the_clamps_is_told_at_the_clamp_and_pulls_no_further() -> None:
    train = torch.tensor([[-60.0, -0.1, -5.0]], dtype=torch.float64, requires_grad=True)
    batch = LossInputs(
        train_logprobs=train,
        old_logprobs=train.detach(),
        rollout_logprobs=train.detach(),
        reference_logprobs=torch.tensor([[-1.0, -700.0, -1.0]], dtype=torch.float64),
        advantages=torch.zeros(1, 1, dtype=torch.float64),
        mask=torch.ones(1, 3, dtype=torch.float64),
    )
    loss = policy_loss(batch, Controls(kl_coef=1.0), NOMINAL).loss
    (gradient,) = torch.autograd.grad(loss, train)
    # Unclamped, e^d - 1 - d at d = 20, -20 and 4 is 4.9e8, 19 and 49.6.
    assert loss.item() == pytest.approx(MAX_K3)
    assert torch.equal(gradient, torch.zeros(1, 3))


def test_the_same_call_obeys_each_control_as_it_changes() -> None:
    batch = inputs(6)
    seen = set()
    for changes in (
        {},
        {"objective": "gspo"},
        {"objective": "cispo"},
        {"aggregation": "fixed_length"},
        {"kl_coef": 1.0},
    ):
        for controls in (Controls(**changes), Controls(**changes, **IMPORTANCE["mis"])):
            loss = policy_loss(batch, controls, ClipBounds.nominal(controls)).loss.item()
            assert loss == policy_loss(batch, controls, ClipBounds.nominal(controls)).loss.item()
            seen.add(loss)
    assert len(seen) == 10


def test_what_the_controls_need_and_the_inputs_lack_is_refused_by_name() -> None:
    batch = inputs(12)
    headless = replace(batch, train_head_logprobs=None, sampler_head_logprobs=None, old_head_logprobs=None)
    with pytest.raises(ValueError, match=r"centering: .* set rollout\.head > 0"):
        policy_loss(headless, Controls(centering=True), NOMINAL)
    with pytest.raises(ValueError, match=r"old_head_logprobs, .* are missing; .* set ratio_reference to sampler"):
        policy_loss(replace(batch, old_head_logprobs=None), Controls(centering=True), NOMINAL)
    policy_loss(replace(batch, old_head_logprobs=None), Controls(centering=True, ratio_reference="sampler"), NOMINAL)
    with pytest.raises(ValueError, match=r"kl_coef: 0\.1, but there are no reference_logprobs"):
        policy_loss(replace(batch, reference_logprobs=None), Controls(kl_coef=0.1), NOMINAL)


@pytest.mark.parametrize(
    "controls",
    [
        Controls(centering=True, objective="gspo"),
        Controls(centering=True, importance="tis", importance_level="geometric"),
        Controls(ratio_reference="sampler", importance="tis"),
        Controls(ratio_reference="sampler", importance="mis", objective="gspo"),
    ],
)
def test_controls_that_contradict_each_other_are_refused_with_their_own_reason(controls: Controls) -> None:
    conflict = controls.conflict()
    assert conflict is not None
    with pytest.raises(ValueError, match=r"needs a weight for each token|would weight nothing") as refused:
        policy_loss(inputs(13), controls, NOMINAL)
    assert str(refused.value) == conflict[1]


@pytest.mark.parametrize("extreme", [math.nan, math.inf, -math.inf, -1e30])
@pytest.mark.parametrize("objective", ["ppo", "gspo", "cispo", "reinforce"])
def test_padding_may_hold_anything(objective: str, extreme: float) -> None:
    batch = inputs(22)
    padding = batch.mask == 0
    assert padding.any()
    spoilt = replace(
        batch,
        **{
            name: getattr(batch, name).detach().masked_fill(padding, extreme).requires_grad_(name == "train_logprobs")
            for name in ("train_logprobs", "old_logprobs", "rollout_logprobs", "reference_logprobs")
        },
        **{
            name: getattr(batch, name).detach().masked_fill(padding[..., None], extreme)
            for name in ("sampler_head_logprobs", "old_head_logprobs")
        },
        advantages=batch.advantages.expand(4, 6).masked_fill(padding, extreme),
        train_head_logprobs=batch.train_head_logprobs.detach()  # type: ignore[union-attr]
        .masked_fill(padding[..., None], extreme)
        .requires_grad_(),
    )
    for reference, weight, centering in itertools.product(("sampler", "recomputed"), IMPORTANCE, (False, True)):
        chosen = {"objective": objective, "ratio_reference": reference, "centering": centering, "kl_coef": 0.1}
        controls = Controls(**chosen, dual_clip=3.0, **IMPORTANCE[weight])  # type: ignore[arg-type]
        if controls.conflict():
            continue
        expected, actual = (policy_loss(one, controls, NOMINAL).loss for one in (batch, spoilt))
        assert actual.item() == expected.item()
        heads = ["train_logprobs", "train_head_logprobs"] if centering else ["train_logprobs"]
        for of_batch, of_spoilt in zip(
            torch.autograd.grad(expected, [getattr(batch, name) for name in heads]),
            torch.autograd.grad(actual, [getattr(spoilt, name) for name in heads]),
            strict=True,
        ):
            assert torch.equal(of_batch, of_spoilt)


@pytest.mark.parametrize("objective", ["ppo", "gspo", "cispo"])
def test_no_live_outlier_becomes_inf(objective: str) -> None:
    """Log-ratios of 89 and more are inf after exp in float32."""
    train = torch.tensor([[-0.5, -200.0, -0.1]], requires_grad=True)
    batch = LossInputs(
        train_logprobs=train,
        old_logprobs=torch.tensor([[-300.0, -0.1, -0.1]]),
        rollout_logprobs=torch.tensor([[-0.1, -400.0, -0.1]]),
        advantages=torch.tensor([[-1.0]]),
        mask=torch.ones(1, 3),
    )
    for weight in IMPORTANCE.values():
        controls = Controls(objective=objective, **weight)  # type: ignore[arg-type]
        loss = policy_loss(batch, controls, ClipBounds(low=-math.inf, high=math.inf)).loss
        (gradient,) = torch.autograd.grad(loss, train)
        assert math.isfinite(loss.item())
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "fixed_length"])
def test_a_minibatch_without_a_live_token_has_no_loss(aggregation: str) -> None:
    batch = replace(inputs(30), mask=torch.zeros(4, 6, dtype=torch.float64))
    loss = policy_loss(batch, Controls(aggregation=aggregation), NOMINAL).loss  # type: ignore[arg-type]
    assert loss.item() == 0.0
    (gradient,) = torch.autograd.grad(loss, batch.train_logprobs)
    assert torch.equal(gradient, torch.zeros(4, 6))


@pytest.mark.parametrize(
    ("advantages", "mask"),
    [(torch.ones(4), torch.ones(4, 6)), (torch.ones(4, 5), torch.ones(4, 6)), (torch.ones(6), torch.ones(6))],
)
def test_advantages_of_another_shape_are_refused_with_both_shapes(advantages: Tensor, mask: Tensor) -> None:
    with pytest.raises(ValueError, match=r"advantages: shape \(.*\), with a mask of \(.*\); give .* \[B, 1\]"):
        replace(inputs(14), advantages=advantages, mask=mask)


def test_bounds_that_are_none_are_refused() -> None:
    with pytest.raises(TypeError, match=r"bounds: \(-0.2, 0.2\) is no ClipBounds"):
        policy_loss(inputs(15), Controls(), (-0.2, 0.2))  # type: ignore[arg-type]
