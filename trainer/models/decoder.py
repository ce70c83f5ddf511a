"""A small decoder-only transformer: pre-norm RMSNorm, GELU, learnt positions, untied head, no biases."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(slots=True)
class KeyValueCache:
    """Keys and values of the tokens so far, [layers] of [B, heads, capacity, head_dim], filled up to `length`."""

    keys: list[Tensor]
    values: list[Tensor]
    length: int = 0


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

    def forward(self, x: Tensor, cache: KeyValueCache | None, layer: int) -> Tensor:
        """[B, T, width] -> [B, T, width]; extends the cache of `layer` if there is one."""
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        if cache is not None:
            end = cache.length + length
            cache.keys[layer][:, :, cache.length : end] = key
            cache.values[layer][:, :, cache.length : end] = value
            key, value = cache.keys[layer][:, :, :end], cache.values[layer][:, :, :end]
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
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

    def forward(self, x: Tensor, cache: KeyValueCache | None, layer: int) -> Tensor:
        """[B, T, width] -> [B, T, width]."""
        x = x + self.attention(self.attention_norm(x), cache, layer)
        return x + self.down(F.gelu(self.up(self.feed_norm(x))))  # type: ignore[no-any-return]


class DecoderLM(nn.Module):
    """The demo's own model; 98k parameters in its linear layers at the default sizes."""

    def __init__(self, shape: ModelShape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.max_length, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=1e-6)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self._initialise(torch.Generator().manual_seed(seed))

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

    def forward(self, tokens: Tensor, *, cache: KeyValueCache | None = None, keep_last: int | None = None) -> Tensor:
        """[B, T] token ids -> [B, T or keep_last, vocabulary] logits.

        Args:
            tokens: the next T tokens of each sequence.
                cache: what the sequences hold so far; extended in place. A filled cache takes one token at a time.
            keep_last: compute logits for the last so many positions only.
        """
        start = 0 if cache is None else cache.length
        x = self.embedding(tokens) + self.positions.weight[start : start + tokens.shape[1]]
        for layer, block in enumerate(self.blocks):
            x = block(x, cache, layer)
        if cache is not None:
            cache.length += tokens.shape[1]
        if keep_last is not None:
            x = x[:, -keep_last:]
        return self.head(self.norm(x))  # type: ignore[no-any-return]

    def new_cache(self, batch: int, capacity: int) -> KeyValueCache:
        """An empty cache for `batch` sequences of up to `capacity` tokens."""
        size = (batch, self.shape.heads, capacity, self.shape.width // self.shape.heads)
        layers = range(self.shape.layers)
        return KeyValueCache(keys=[torch.empty(size) for _ in layers], values=[torch.empty(size) for _ in layers])
