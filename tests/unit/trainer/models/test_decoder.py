"""The embedded model: its cache against the plain forward pass, and causality."""

from __future__ import annotations

import torch

from trimtab.trainer.models.decoder import DecoderLM, ModelShape

SHAPE = ModelShape(vocabulary=16, max_length=24, width=32, layers=3, heads=4, hidden=64)


def test_cached_decoding_equals_the_full_forward_pass() -> None:
    model = DecoderLM(SHAPE, seed=5).eval()
    tokens = torch.randint(0, 16, (6, 20), generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        full = model(tokens)
        cache = model.new_cache(6, 20)
        parts = [model(tokens[:, :9], cache=cache)]
        parts += [model(tokens[:, position : position + 1], cache=cache) for position in range(9, 20)]
    assert cache.length == 20
    torch.testing.assert_close(torch.cat(parts, 1), full, rtol=1e-5, atol=1e-5)


def test_logits_do_not_look_ahead() -> None:
    model = DecoderLM(SHAPE)
    tokens = torch.zeros(1, 12, dtype=torch.long)
    changed = tokens.clone()
    changed[0, 7] = 3
    difference = (model(tokens) - model(changed)).abs().amax(-1)[0]
    assert difference[:7].max() == 0
    assert (difference[7:] > 0).all()


def test_keep_last_is_the_tail_of_the_logits() -> None:
    model = DecoderLM(SHAPE)
    tokens = torch.randint(0, 16, (2, 10), generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(model(tokens, keep_last=4), model(tokens)[:, -4:])


def test_seed_decides_the_weights() -> None:
    first, second, other = (DecoderLM(SHAPE, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(first[name].equal(second[name]) for name in first)
    assert not first["head.weight"].equal(other["head.weight"])
