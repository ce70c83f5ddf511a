"""A small decoder-only transformer: pre-norm RMSNorm, GELU, learnt positions, untied head, no biases."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trimtab.trainer.quant.kv_cache import stored


@dataclass(slots=True)
class KeyValueCache:
    """Keys and values of the tokens so far, [layers] of [B, heads, capacity, head_dim], filled up to `length`."""

    keys: list[Tensor]
    values: list[Tensor]
    kv_format: str = "none"
    length: int = 0

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store [B, heads, T, head_dim] behind what `layer` holds, and return all that it holds then."""
        end = self.length + key.shape[2]
        self.keys[layer][:, :, self.length : end] = stored(key, self.kv_format)
        self.values[layer][:, :, self.length : end] = stored(value, self.kv_format)
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence `repeats` times in a row."""
        self.keys = [key.repeat_interleave(repeats, 0) for key in self.keys]
        self.values = [value.repeat_interleave(repeats, 0) for value in self.values]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a `DecoderLM`."""

    vocabulary: int
    max_length: int
    width: int = 64
    layers: int = 2
    heads: int = 4
    hidden: int = 256


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, cache: KeyValueCache | None, layer: int, mask: Tensor | None) -> Tensor:
        """[B, T, width] -> [B, T, width]; extends the cache of `layer` if there is one.

        `mask` is [B, 1, T, S], true where a query may look; None is plain causality.
        """
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        if cache is not None:
            key, value = cache.extend(layer, key, value)
        causal = mask is None and length > 1
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm and around a residual."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=1e-6)
        self.attention = Attention(shape)
        self.feed_norm = nn.RMSNorm(shape.width, eps=1e-6)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor, cache: KeyValueCache | None, layer: int, mask: Tensor | None) -> Tensor:
        """[B, T, width] -> [B, T, width]; see `Attention.forward`."""
        x = x + self.attention(self.attention_norm(x), cache, layer, mask)
        return x + self.down(F.gelu(self.up(self.feed_norm(x))))  # type: ignore[no-any-return]


class DecoderLM(nn.Module):
    """The demo's own model; 98k parameters in its linear layers at the default sizes.

    Args:
        shape: its sizes.
        seed: of its initial weights.
        gradient_checkpointing: compute each block again in the backward pass instead of keeping its activations.
    """

    def __init__(self, shape: ModelShape, seed: int = 0, *, gradient_checkpointing: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.gradient_checkpointing = gradient_checkpointing
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.max_length, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=1e-6)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self._initialise(torch.Generator().manual_seed(seed))

    @property
    def context(self) -> int:
        """Most tokens that a sequence may have."""
        return self.shape.max_length

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        # Layers that write to the residual stream start smaller, so that its variance does not grow with depth.
        for name, parameter in self.named_parameters():
            if name.startswith(("embedding", "positions")):
                parameter.normal_(0.0, 0.5, generator=generator)
            elif parameter.dim() == 2:
                writes_residual = name.endswith(("out.weight", "down.weight"))
                scale = (2 * self.shape.layers) ** -0.5 if writes_residual else 1.0
                parameter.normal_(0.0, scale * parameter.shape[1] ** -0.5, generator=generator)

    def forward(
        self,
        tokens: Tensor,
        *,
        cache: KeyValueCache | None = None,
        keep_last: int | None = None,
        padding: Tensor | None = None,
    ) -> Tensor:
        """[B, T] token ids -> [B, T or keep_last, vocabulary] logits; see `LanguageModel`."""
        start = 0 if cache is None else cache.length
        end = start + tokens.shape[1]
        mask = None
        if padding is None:
            x = self.embedding(tokens) + self.positions.weight[start:end]
        else:
            place = torch.arange(start, end, device=tokens.device) - padding[:, None]
            x = self.embedding(tokens) + self.positions(place.clamp_min(0))
            mask = padded_causal_mask(padding, start, end)
        recompute = self.gradient_checkpointing and self.training and cache is None and torch.is_grad_enabled()
        for layer, block in enumerate(self.blocks):
            if recompute:
                x = checkpoint(block, x, cache, layer, mask, use_reentrant=False)
            else:
                x = block(x, cache, layer, mask)
        if cache is not None:
            cache.length = end
        if keep_last is not None:
            x = x[:, -keep_last:]
        return self.head(self.norm(x))  # type: ignore[no-any-return]

    def new_cache(self, batch: int, capacity: int, kv_format: str = "none") -> KeyValueCache:
        """An empty cache for `batch` sequences of up to `capacity` tokens."""
        size = (batch, self.shape.heads, capacity, self.shape.width // self.shape.heads)
        empty = self.embedding.weight.new_empty
        layers = range(self.shape.layers)
        return KeyValueCache(
            keys=[empty(size) for _ in layers], values=[empty(size) for _ in layers], kv_format=kv_format
        )


def padded_causal_mask(padding: Tensor, start: int, end: int) -> Tensor:
    """[B, 1, end - start, end] whether the query at each position from `start` on may look at each key.

    It sees the keys up to its own that are no padding. Padding sees itself, so that no row of the softmax is empty.
    """
    query = torch.arange(start, end, device=padding.device)[:, None]
    key = torch.arange(end, device=padding.device)
    real = key >= padding[:, None, None]
    return (((key <= query) & real) | (key == query))[:, None]
