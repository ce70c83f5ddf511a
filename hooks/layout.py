"""One float64 vector that holds everything a rank measures in a step.

    counts    [sketch, sign, cell]    tokens by cell of the log-ratio (see `cell_of` in `trimtab.hooks.sketch`)
    sums      [sketch, sign, 6]       n, x, x^2, k, x k, k^2 summed over the n tokens seen, where k = e^x - 1 - x
    totals    [sign, 5]               the fields of `SignTotals`
    nonfinite [tensor, 5]             the fields of `NonFinite`
    observed  [sketch]                number of batches that carried the sketch's tensors
    positions, lengths, responses     see `trimtab.hooks.responses`

Everything is a count or a sum, so adding two vectors merges what they saw, and one all-reduce merges a job. A token
that does not count (masked, or not usable) is counted as a log-ratio of 0, since a device then needs no selection;
`measured` takes these out again: they are the tokens in `counts` beyond those in `sums`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.controls import RatioReference
from trimtab.hooks.records import MAX_LOGPROB, NonFinite, SignTotals, StepSummary, TokenBatch
from trimtab.hooks.responses import (
    BUCKET_SUMS,
    LENGTH_STARTS,
    POSITION_STARTS,
    RESPONSE_CELLS,
    buckets,
    sequence_totals,
)
from trimtab.hooks.sketch import BINS, CELLS, MAX_LOG_RATIO, SUMS, ZERO_BIN, Sign, SignSketch, Sketch, bins_of_cells

Array = NDArray[np.float64]

SKETCHES = ("update", "mismatch", "shadow")
LOGPROBS = ("train_logprobs", "old_logprobs", "rollout_logprobs", "shadow_train_logprobs", "shadow_old_logprobs")
TENSORS = (*LOGPROBS, "entropy", "advantages")
"""The tensors whose unusable values are counted, in order."""
LIMITS: dict[str, float] = dict.fromkeys(TENSORS, math.inf) | dict.fromkeys(LOGPROBS, MAX_LOGPROB)
"""Largest value of each tensor that can be used; no infinity can."""
SIGNS = len(Sign)
_MOMENTS = 6
_TOTALS = len(fields(SignTotals))
_KINDS = tuple(f.name for f in fields(NonFinite))

_SHAPES: tuple[tuple[int, ...], ...] = (
    (len(SKETCHES), SIGNS, CELLS),
    (len(SKETCHES), SIGNS, _MOMENTS),
    (SIGNS, _TOTALS),
    (len(TENSORS), len(_KINDS)),
    (len(SKETCHES),),
    (len(POSITION_STARTS), BUCKET_SUMS),
    (len(LENGTH_STARTS), BUCKET_SUMS),
    (RESPONSE_CELLS,),
)
SIZE = sum(map(math.prod, _SHAPES))


@dataclass(frozen=True, slots=True)
class Parts:
    """Views of a vector, numpy's or torch's, in the order and the shapes given above."""

    counts: Any
    sums: Any
    totals: Any
    nonfinite: Any
    observed: Any
    positions: Any
    lengths: Any
    responses: Any


def parts(vector: Any) -> Parts:
    """Views of a vector of shape [SIZE]."""
    views, start = [], 0
    for shape in _SHAPES:
        end = start + math.prod(shape)
        views.append(vector[start:end].reshape(shape))
        start = end
    return Parts(*views)


@dataclass(frozen=True, slots=True)
class Packed:
    """A copy of a vector, to be kept for a while, without the sketches that were not observed."""

    counts: dict[int, Array]
    """By number of the sketch."""
    others: Array

    @classmethod
    def of(cls, vector: Array) -> Self:
        """A copy of a vector of shape [SIZE]."""
        part, size = parts(vector), math.prod(_SHAPES[0])
        seen = np.flatnonzero(part.observed).tolist()
        return cls({i: part.counts[i].copy() for i in seen}, vector[size:].copy())

    def vector(self) -> Array:
        """The vector again, [SIZE]."""
        vector = np.zeros(SIZE)
        vector[-len(self.others) :] = self.others
        counts = parts(vector).counts
        for i, tokens in self.counts.items():
            counts[i] = tokens
        return vector


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """A step's summary, and what was measured in the step until somebody reads it."""

    summary: StepSummary
    vector: Packed | None = None
    """None where the summary is whole."""

    def whole(self) -> StepSummary:
        """The summary with what was measured."""
        return self.summary if self.vector is None else measured(self.summary, self.vector.vector())


Pairs = dict[str, tuple[str, str]]


def log_ratios(batch: TokenBatch, reference: RatioReference) -> Pairs:
    """Numerator and denominator tensors of each sketch that the batch can fill.

    `update` is the ratio of the loss: its denominator is the one that `reference` names, or the other where only that
    was given.
    """
    return _pairs(reference, tuple(name for name in LOGPROBS if getattr(batch, name) is not None))


@cache
def _pairs(reference: RatioReference, given: tuple[str, ...]) -> Pairs:
    old, sampler = "old_logprobs", "rollout_logprobs"
    pairs: Pairs = {}
    for denominator in (sampler, old) if reference == "sampler" else (old, sampler):
        if denominator in given:
            pairs["update"] = ("train_logprobs", denominator)
            break
    if sampler in given:
        pairs["mismatch"] = (old if old in given else "train_logprobs", sampler)
    if {"shadow_train_logprobs", "shadow_old_logprobs"} <= set(given):
        pairs["shadow"] = ("shadow_train_logprobs", "shadow_old_logprobs")
    return pairs


def measured(summary: StepSummary, vector: Array) -> StepSummary:
    """`summary` with what a vector of shape [SIZE] says."""
    part = parts(vector)
    seen = np.flatnonzero(part.observed).tolist()
    signs = iter(_sign_sketches(part.counts[seen], part.sums[seen]))
    sketches = {
        SKETCHES[i]: Sketch(negative=negative, zero=zero, positive=positive)
        for i, negative, zero, positive in zip(seen, signs, signs, signs, strict=True)
    }
    negative_total, zero_total, positive_total = (
        SignTotals(tokens=int(n), advantage_abs=size, entropy_tokens=int(m), entropy=h, entropy_sq=h_sq)
        for n, size, m, h, h_sq in part.totals.tolist()
    )
    nonfinite = {}
    if part.nonfinite.any():
        for name, row in zip(TENSORS, part.nonfinite.tolist(), strict=True):
            if any(row):
                nonfinite[name] = NonFinite(**dict(zip(_KINDS, map(int, row), strict=True)))
    sequences = sequence_totals(part.responses)
    return replace(
        summary,
        sketches=sketches,
        negative=negative_total,
        zero=zero_total,
        positive=positive_total,
        nonfinite=nonfinite,
        by_position=buckets(POSITION_STARTS, part.positions) if sequences else (),
        by_length=buckets(LENGTH_STARTS, part.lengths) if sequences else (),
        sequences=sequences,
    )


def _sign_sketches(cells: NDArray[np.float64], moments: Array) -> list[SignSketch]:
    """Every sign of every sketch, in order: from [sketches, 3, CELLS] and [sketches, 3, moments]."""
    n, x, x_sq, k, x_k, k_sq = np.moveaxis(moments, -1, 0)
    excess = x + k
    # Where all log-ratios are near -20 little is left of 1 + x + k, and rounding must not make it less than can be.
    ratio = np.maximum(n + excess, n * math.exp(-MAX_LOG_RATIO))
    ratio_sq = np.maximum(n + 2 * excess + x_sq + 2 * x_k + k_sq, ratio**2 / np.maximum(n, 1))
    sums = np.stack([x, x_sq, ratio, ratio_sq, k], axis=-1)
    counts = bins_of_cells(cells)
    counts[..., ZERO_BIN] -= counts.sum(-1) - n
    return SignSketch.rows(counts.reshape(-1, BINS), sums.reshape(-1, len(SUMS)))
