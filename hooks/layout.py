"""One float64 vector that holds everything a rank measures in a step.

    counts    [sketch, sign, cell]    tokens by cell of the log-ratio (see `cell_of` in `trimtab.hooks.sketch`)
    sums      [sketch, sign, 1 + m]   number of tokens that were seen, then `sketch.SUMS`
    totals    [sign, 5]               the fields of `SignTotals`
    nonfinite [tensor, 4]             the fields of `NonFinite`
    observed  [sketch]                number of batches that carried the sketch's tensors

Everything is a count or a sum, so adding two vectors merges what they saw, and one all-reduce merges a job. A token
that does not count (masked, or not finite) is counted as a log-ratio of 0, since a device then needs no selection;
`assemble` takes these out again: they are the tokens in `counts` beyond those in `sums`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.controls import RatioReference
from trimtab.hooks.records import NonFinite, SignTotals, TokenBatch
from trimtab.hooks.sketch import CELLS, SUMS, ZERO_BIN, Sign, SignSketch, Sketch, bins_of_cells

SKETCHES = ("update", "mismatch", "shadow")
TENSORS = (
    "train_logprobs",
    "old_logprobs",
    "rollout_logprobs",
    "shadow_train_logprobs",
    "shadow_old_logprobs",
    "entropy",
    "advantages",
)
"""The tensors whose non-finite values are counted, in order."""
SIGNS = len(Sign)
TOTALS = tuple(f.name for f in fields(SignTotals))
KINDS = tuple(f.name for f in fields(NonFinite))

_SHAPES: dict[str, tuple[int, ...]] = {
    "counts": (len(SKETCHES), SIGNS, CELLS),
    "sums": (len(SKETCHES), SIGNS, 1 + len(SUMS)),
    "totals": (SIGNS, len(TOTALS)),
    "nonfinite": (len(TENSORS), len(KINDS)),
    "observed": (len(SKETCHES),),
}
SIZE = sum(int(np.prod(shape)) for shape in _SHAPES.values())


def parts(vector: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Views of a vector's parts, in the shapes above. Works on a torch vector as well."""
    views, start = {}, 0
    for name, shape in _SHAPES.items():
        size = int(np.prod(shape))
        views[name] = vector[start : start + size].reshape(shape)
        start += size
    return views


def log_ratios(batch: TokenBatch, reference: RatioReference) -> dict[str, tuple[str, str]]:
    """Numerator and denominator tensors of each sketch that the batch can fill.

    `update` is the ratio of the loss: its denominator is the one that `reference` names, or the other where only that
    was given.
    """
    given = {name for name in TENSORS if getattr(batch, name) is not None}
    sampler_first = ("rollout_logprobs", "old_logprobs")
    order = sampler_first if reference == "sampler" else sampler_first[::-1]
    pairs = {}
    for denominator in order:
        if denominator in given:
            pairs["update"] = ("train_logprobs", denominator)
            break
    if "rollout_logprobs" in given:
        pairs["mismatch"] = ("old_logprobs" if "old_logprobs" in given else "train_logprobs", "rollout_logprobs")
    if {"shadow_train_logprobs", "shadow_old_logprobs"} <= given:
        pairs["shadow"] = ("shadow_train_logprobs", "shadow_old_logprobs")
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a vector says, in the fields of `StepSummary`."""

    sketches: dict[str, Sketch]
    negative: SignTotals
    zero: SignTotals
    positive: SignTotals
    nonfinite: dict[str, NonFinite]


def assemble(vector: NDArray[np.float64]) -> Measured:
    """Read a vector of shape [SIZE]."""
    part = parts(vector)
    sketches = {
        name: Sketch(negative=signs[0], zero=signs[1], positive=signs[2])
        for name, observed, signs in zip(SKETCHES, part["observed"], _sign_sketches(part), strict=True)
        if observed
    }
    totals = [
        SignTotals(
            tokens=int(row[0]), advantage_abs=row[1], entropy_tokens=int(row[2]), entropy=row[3], entropy_sq=row[4]
        )
        for row in part["totals"].tolist()
    ]
    nonfinite = {
        name: NonFinite(**dict(zip(KINDS, map(int, row), strict=True)))
        for name, row in zip(TENSORS, part["nonfinite"].tolist(), strict=True)
        if any(row)
    }
    return Measured(sketches=sketches, negative=totals[0], zero=totals[1], positive=totals[2], nonfinite=nonfinite)


def _sign_sketches(part: dict[str, NDArray[np.float64]]) -> list[list[SignSketch]]:
    rows = zip(part["counts"], part["sums"], strict=True)
    return [[_sign_sketch(*sign) for sign in zip(cells, sums, strict=True)] for cells, sums in rows]


def _sign_sketch(cells: NDArray[np.float64], sums: NDArray[np.float64]) -> SignSketch:
    n = int(sums[0])
    if not n:
        return SignSketch()
    counts = bins_of_cells(cells)
    counts[ZERO_BIN] -= counts.sum() - n
    bins = np.flatnonzero(counts)
    return SignSketch(
        bins=tuple(bins.tolist()),
        counts=tuple(counts[bins].astype(np.int64).tolist()),
        sums=tuple(sums[1:].tolist()),
    )
