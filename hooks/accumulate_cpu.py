"""The sums of `trimtab.hooks.accumulate.measure` in a fraction of its time, for the batches that training really has.

One pass fills a few planes: the mask, the log-ratios x, k = e^x - 1 - x, the entropy. The Gram matrix of a sequence's
rows of them holds every sum there is, and adding Gram matrices by advantage sign, in float64, is all that is left. It
also tells whether the batch was tame: a NaN or an infinity anywhere, masked or not, makes it not finite, and an x
beyond the clamp makes the sum of x^2 too large. A batch that is not tame is left to `measure`.

The planes fall out of the cache on the way, so what counts is few passes and little Python: memory, views and indices
are made once a shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from trimtab.hooks.accumulate_torch import plane
from trimtab.hooks.controls import RatioReference
from trimtab.hooks.layout import SIGNS, SKETCHES, Parts, log_ratios
from trimtab.hooks.records import TokenBatch
from trimtab.hooks.sketch import CELL_SHIFT, CELLS, MAX_LOG_RATIO

Array = NDArray[np.float64]

SLICE = 512
"""Tokens of a sequence summed in float32 before float64 takes over."""

_NUMPY_EXPM1 = torch.backends.cpu.get_cpu_capability() == "AVX512"
"""numpy's float32 expm1 is vectorised there, and faster than torch's."""


@dataclass(frozen=True, slots=True)
class _Scratch:
    """Memory for batches of one shape: planes [R, B, T], all 0 under the mask, and views of them."""

    rows: tuple[torch.Tensor, ...]
    """[B, R, tokens] for each slice of tokens."""
    live: torch.Tensor
    x: torch.Tensor
    """[K, B, T] log-ratio of each pair."""
    k: torch.Tensor
    """[K, B, T]"""
    entropy: torch.Tensor
    advantage: torch.Tensor
    sign: torch.Tensor
    half: torch.Tensor
    """[K, B, T] float16."""
    cells: torch.Tensor
    """[K, B, T] int32, in the memory of k."""
    first: NDArray[np.int32]
    """[K, 1] first cell of each pair, had it a positive log-ratio and a zero advantage."""

    @classmethod
    def of(cls, shape: tuple[int, int], pairs: int) -> Self:
        """For log-probs of `shape` [B, T] that make so many log-ratios."""
        planes = torch.zeros(4 + 2 * pairs, *shape)
        k = planes[1 + pairs : 1 + 2 * pairs]
        first = np.arange(pairs, dtype=np.int32)[:, None] * (SIGNS * CELLS) + CELLS + CELLS // 2
        return cls(
            rows=tuple(part.transpose(0, 1) for part in torch.split(planes, SLICE, dim=2)),
            live=planes[0],
            x=planes[1 : 1 + pairs],
            k=k,
            entropy=planes[-3],
            advantage=planes[-2],
            sign=planes[-1],
            half=torch.zeros(pairs, *shape, dtype=torch.float16),
            cells=k.view(torch.int32),
            first=first.astype(np.int32),
        )


class CpuSums:
    """Measures tame batches of CPU tensors. Keeps nothing but scratch memory."""

    def __init__(self) -> None:
        self._shape: tuple[int, ...] = ()
        self._scratch = _Scratch.of((1, 1), 1)

    @torch.no_grad()
    def add(self, part: Parts, batch: TokenBatch, reference: RatioReference) -> bool:
        """Add one batch to a vector's parts.

        False, and nothing is added, where the batch is not tame, is not of shape [B, T], or where the advantage changes
        its sign within a sequence.
        """
        mask = torch.as_tensor(batch.loss_mask)
        names = log_ratios(batch, reference)
        if mask.ndim != 2 or not mask.numel() or not names:
            return False
        pairs = tuple(dict.fromkeys(names.values()))
        K = len(pairs)
        if self._shape != (*mask.shape, K):
            self._scratch = _Scratch.of((mask.shape[0], mask.shape[1]), K)
            self._shape = (*mask.shape, K)
        self._fill(batch, mask, pairs)
        gram = _gram(self._scratch.rows)
        signs = _signs(gram)
        if signs is None or not gram[:, 1 : 1 + K, 1 : 1 + K].max() <= MAX_LOG_RATIO**2:
            return False
        member = (signs == _SIGNS).astype(np.float64)
        sums = (member @ gram.reshape(len(gram), -1)).reshape(SIGNS, *gram.shape[1:])
        if not math.isfinite(sums.sum()):
            return False
        counts = self._counts(signs)
        for name, pair in names.items():
            i, j = SKETCHES.index(name), pairs.index(pair)
            x, k = 1 + j, 1 + j + K
            part.observed[i] += 1
            part.counts[i] += counts[j]
            part.sums[i] += sums[:, (0, 0, x, 0, x, k), (0, x, x, k, k, k)]
        entropy = 1 + 2 * K
        totals = sums[:, (0, 0, 0, 0, entropy), (0, -2, 0, entropy, entropy)]
        totals[:, 1] = np.abs(totals[:, 1])
        totals[:, 2] *= batch.entropy is not None
        part.totals[:] += totals
        return True

    def _fill(self, batch: TokenBatch, mask: torch.Tensor, pairs: tuple[tuple[str, str], ...]) -> None:
        """Write every plane."""
        to, shape = self._scratch, mask.shape
        if mask.dtype == torch.bool:
            to.live.copy_(mask.view(torch.uint8))
        else:
            torch.ne(mask, 0, out=to.live)
        for x, (numerator, denominator) in zip(to.x, pairs, strict=True):
            top, bottom = getattr(batch, numerator), getattr(batch, denominator)
            torch.sub(plane(numerator, top, shape), plane(denominator, bottom, shape), out=x)
        to.x.mul_(to.live)
        if _NUMPY_EXPM1:
            with np.errstate(all="ignore"):
                np.expm1(to.x.numpy(), out=to.k.numpy())
        else:
            torch.expm1(to.x, out=to.k)
        to.k.sub_(to.x)
        if batch.entropy is None:
            to.entropy.zero_()
        else:
            torch.mul(plane("entropy", batch.entropy, shape), to.live, out=to.entropy)
        torch.mul(plane("advantages", batch.advantages, shape), to.live, out=to.advantage)
        torch.sign(to.advantage, out=to.sign)

    def _counts(self, signs: Array) -> NDArray[np.int64]:
        """[K, 3, CELLS] tokens by cell of x, and by their sequence's sign, [B]. Writes over k."""
        scratch = self._scratch
        scratch.half.copy_(scratch.x)
        np.right_shift(scratch.half.view(torch.int16).numpy(), CELL_SHIFT, out=scratch.cells.numpy())
        scratch.cells.add_(torch.from_numpy(scratch.first + (signs * CELLS).astype(np.int32))[:, :, None])
        counts = torch.bincount(scratch.cells.view(-1), minlength=len(scratch.first) * SIGNS * CELLS)
        array: NDArray[np.int64] = counts.numpy().reshape(-1, SIGNS, CELLS)
        return array


def _gram(slices: tuple[torch.Tensor, ...]) -> Array:
    """[B, R, R] products of rows, [B, R, tokens] a slice, summed over all tokens."""
    first, *others = (torch.bmm(rows, rows.transpose(1, 2)).numpy() for rows in slices)
    gram = first.astype(np.float64)
    for other in others:
        gram += other
    return gram


_SIGNS = np.array([[-1.0], [0.0], [1.0]])


def _signs(gram: Array) -> Array | None:
    """[B] advantage sign of each sequence, or None where one has several."""
    n, total, nonzero = gram[:, 0, 0], gram[:, 0, -1], gram[:, -1, -1]
    if ((np.abs(total) != nonzero) | ((nonzero != 0) & (nonzero != n))).any():
        return None
    return np.sign(total)
