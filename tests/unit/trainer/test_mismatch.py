"""Heads and masked tokens of a batch, against explicit loops over tokens and over the vocabulary."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trimtab.hooks.centering import score_centering
from trimtab.hooks.controls import Controls
from trimtab.trainer.batch import Batch
from trimtab.trainer.mismatch import mismatch_scalars

VOCABULARY = 11


def batch(seed: int, k: int, spread: float = 0.5) -> tuple[Batch, Tensor, Tensor]:
    """A batch of 4 x 6 tokens, and the [4, 6, V] log-probs of trainer and sampler that it was made from."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(4, 6, VOCABULARY, generator=generator).double()
    sampler = torch.log_softmax(logits, -1)
    trainer = torch.log_softmax(logits + spread * torch.randn(logits.shape, generator=generator), -1)
    head_logprobs, head_ids = sampler.topk(k, -1)
    responses = torch.randint(0, VOCABULARY, (4, 6), generator=generator)
    mask = (torch.rand(4, 6, generator=generator) < 0.6).float()
    mask[0] = 0
    mask[1, 0] = 1
    advantages = torch.randn(4, 1, generator=generator)
    fields: dict[str, Any] = {"padding": None, "reference_logprobs": None, "shadow_old_logprobs": None}
    scored = Batch(
        tokens=torch.zeros(4, 8, dtype=torch.long),
        responses=responses,
        mask=mask,
        advantages=advantages,
        rollout_logprobs=sampler.gather(2, responses[..., None])[..., 0],
        old_logprobs=trainer.gather(2, responses[..., None])[..., 0],
        head_ids=head_ids,
        head_logprobs=head_logprobs,
        old_head_logprobs=trainer.gather(2, head_ids),
        entropy=torch.zeros(4, 6),
        **fields,
    )
    return scored, trainer, sampler


def live_tokens(scored: Batch) -> list[tuple[int, int]]:
    return [(row, t) for row in range(4) for t in range(6) if scored.mask[row, t]]


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), k=st.integers(1, VOCABULARY - 1))
def test_heads_token_by_token(seed: int, k: int) -> None:
    scored, trainer, sampler = batch(seed, k)
    variations, sizes = [], []
    for row, t in live_tokens(scored):
        p, q = trainer[row, t].double().exp().tolist(), sampler[row, t].double().exp().tolist()
        head = sorted(range(VOCABULARY), key=lambda v: -q[v])[:k]
        tail = [v for v in range(VOCABULARY) if v not in head]
        p_tail, q_tail = sum(p[v] for v in tail), sum(q[v] for v in tail)
        variations.append((sum(abs(p[v] - q[v]) for v in head) + abs(p_tail - q_tail)) / 2)
        rho = max(q_tail, 1e-6) / max(p_tail, 1e-6)
        sizes.append(abs(scored.advantages[row, 0].item()) * sum(abs(q[v] - rho * p[v]) for v in head))
    got = mismatch_scalars(scored, Controls())
    assert set(got) == {"head_tv", "centering_size"}
    assert got["head_tv"] == pytest.approx(sum(variations) / len(variations), rel=1e-9)
    assert got["centering_size"] == pytest.approx(sum(sizes) / len(sizes), rel=1e-6)


@pytest.mark.parametrize("k", [1, 4, VOCABULARY])
def test_they_are_what_score_centering_uses(k: int) -> None:
    """Its total variation, and the gradient that its term has with respect to the head's log-probs."""
    scored, _, _ = batch(3, k)
    live = scored.mask > 0
    head = scored.old_head_logprobs.clone().requires_grad_()
    centering = score_centering(head, scored.head_logprobs)
    (scored.advantages * centering.term)[live].sum().backward()
    got = mismatch_scalars(scored, Controls(centering=True, ratio_reference="recomputed"))
    assert got["head_tv"] == pytest.approx(float(centering.total_variation[live].mean()), rel=1e-5)
    assert got["centering_size"] == pytest.approx(float(head.grad.abs().sum(-1)[live].mean()), rel=1e-4)


def test_without_a_head_or_a_live_token_there_is_nothing() -> None:
    scored, _, _ = batch(4, 3)
    assert mismatch_scalars(batch(4, 0)[0], Controls()) == {}
    scored.mask.zero_()
    assert mismatch_scalars(scored, Controls(importance="mis", ratio_reference="recomputed")) == {}


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("seed", range(5))
def test_what_masking_keeps_counted_one_by_one(level: Any, seed: int) -> None:
    scored, _, _ = batch(seed, 0, spread=1.0)
    scored.rollout_logprobs[1, 0] = math.nan  # a sampler that gave none
    controls = Controls(
        importance="mis",
        importance_level=level,
        importance_low=0.6,
        importance_high=1.5,
        ratio_reference="recomputed",
    )
    ratios = []
    for row in range(1, 4):
        tokens = [t for t in range(6) if scored.mask[row, t]]
        terms = [float(scored.old_logprobs[row, t] - scored.rollout_logprobs[row, t]) for t in tokens]
        total = {"token": terms, "sequence": [sum(terms)], "geometric": [sum(terms) / max(len(terms), 1)]}[level]
        ratios += [math.exp(x) for x in total] if terms else []
    kept = sum(0.6 <= ratio <= 1.5 for ratio in ratios)
    assert mismatch_scalars(scored, controls) == {"retained_fraction": pytest.approx(kept / len(ratios))}


def test_weights_that_mask_nothing_retain_nothing_to_tell() -> None:
    scored, _, _ = batch(5, 0)
    assert mismatch_scalars(scored, Controls(importance="tis", ratio_reference="recomputed")) == {}
