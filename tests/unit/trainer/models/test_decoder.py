"""The embedded model: its cache against the plain forward pass, and causality."""

from __future__ import annotations

import pytest
import torch
from padded_rows import padded_tokens

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


@pytest.mark.parametrize("seed", [1, 2])
def test_a_left_padded_row_equals_the_row_alone(seed: int) -> None:
    model = DecoderLM(SHAPE, seed=5).eval()
    tokens, padding = padded_tokens(seed, vocabulary=16, length=20)
    with torch.no_grad():
        full = model(tokens, padding=padding)
        cache = model.new_cache(4, 20)
        parts = [model(tokens[:, :9], cache=cache, padding=padding)]
        parts += [model(tokens[:, at : at + 1], cache=cache, padding=padding) for at in range(9, 20)]
        cached = torch.cat(parts, 1)
        for row, skip in enumerate(padding.tolist()):
            alone = model(tokens[row : row + 1, skip:])[0]
            torch.testing.assert_close(full[row, skip:], alone, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(cached[row, skip:], alone, rtol=1e-5, atol=1e-5)


def test_what_padding_holds_does_not_matter() -> None:
    model = DecoderLM(SHAPE)
    tokens, padding = padded_tokens(3, vocabulary=16, length=12)
    other = tokens.clone()
    for row, skip in enumerate(padding.tolist()):
        other[row, :skip] = 15
    kept = torch.arange(12) >= padding[:, None]
    assert model(tokens, padding=padding)[kept].equal(model(other, padding=padding)[kept])


def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    tokens, padding = padded_tokens(4, vocabulary=16, length=12)
    gradients = []
    for gradient_checkpointing in (False, True):
        model = DecoderLM(SHAPE, seed=5, gradient_checkpointing=gradient_checkpointing)
        calls = []
        model.blocks[0].register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        model(tokens, padding=padding, keep_last=5).square().mean().backward()
        assert len(calls) == 1 + gradient_checkpointing
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    assert all(gradients[0][name].equal(gradients[1][name]) for name in gradients[0])


def test_an_fp8_cache_holds_what_e4m3_can() -> None:
    model = DecoderLM(SHAPE, seed=5).eval()
    tokens = torch.randint(0, 16, (3, 12), generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        exact, rounded = (model.new_cache(3, 12, kv_format) for kv_format in ("none", "fp8"))
        expected, got = (model(tokens, cache=cache) for cache in (exact, rounded))
    first = exact.keys[0].to(torch.float8_e4m3fn).float()
    assert rounded.keys[0].equal(first)
    assert not exact.keys[0].equal(first)
    difference = (got - expected).abs().max().item()
    assert 0 < difference < 0.5
