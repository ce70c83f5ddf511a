"""The mismatch by token position, by length of the response, and of whole responses, as sums and counts.

    positions [6, 3]  n, x, |x| summed over the tokens of each range of positions
    lengths   [6, 3]  the same over the tokens of the responses of each range of lengths
    responses [23]    batches that had rows; the counts and sums of `SequenceTotals`, in order

x is the log-ratio of the sketch `mismatch`, clamped as in its sums, of the tokens that the sketch counts. A row of a
[B, T] batch is one response. Its tokens are numbered from its first live one, holes included; its length is the number
of its live tokens. Batches of another shape do not say where a response begins, and add nothing here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.records import MEAN_LEVELS, RATIO_CAPS, Bucket, SequenceTotals
from trimtab.hooks.sketch import MAX_LOG_RATIO

POSITION_STARTS = (0, 1, 4, 16, 64, 256)
"""First position of each range; it ends where the next begins."""
LENGTH_STARTS = (1, 4, 16, 64, 256, 1024)
"""Shortest length of each range."""
BUCKET_SUMS = 3
_COUNTS = 3
_RATIOS = 2
RESPONSE_CELLS = 1 + _COUNTS + _RATIOS + len(RATIO_CAPS) + len(MEAN_LEVELS) + 1
OVERFLOW = float(np.log(np.finfo(np.float32).max))
"""Log-ratio above which a float32 exponential is infinite."""
LOG_CAPS = tuple(float(cap) for cap in np.log(RATIO_CAPS))


def buckets(starts: tuple[int, ...], sums: NDArray[np.float64]) -> tuple[Bucket, ...]:
    """The records of [6, 3] sums."""
    ends = (*(start - 1 for start in starts[1:]), None)
    return tuple(
        Bucket(first=first, last=last, tokens=int(n), total=total, absolute=absolute)
        for first, last, (n, total, absolute) in zip(starts, ends, sums.tolist(), strict=True)
    )


def sequence_totals(cells: NDArray[np.float64]) -> SequenceTotals | None:
    """The record of [RESPONSE_CELLS] sums; None where no batch had rows."""
    batches, sequences, missing, observed, ratio, ratio_sq, *above, latent = cells.tolist()
    if not batches:
        return None
    counts = tuple(map(int, above))
    return SequenceTotals(
        sequences=int(sequences),
        missing=int(missing),
        observed=int(observed),
        ratio=ratio,
        ratio_sq=ratio_sq,
        ratio_above=counts[: len(RATIO_CAPS)],
        mean_above=counts[len(RATIO_CAPS) :],
        latent=int(latent),
    )


def measure_responses(
    part: Any,
    live: NDArray[np.bool_],
    sampled: NDArray[np.bool_],
    counted: NDArray[np.bool_],
    log_ratio: NDArray[np.float32],
) -> None:
    """Add a batch to the views of a vector.

    Args:
        part: the views, `trimtab.hooks.layout.Parts`.
        live: [B, T] tokens under the loss mask.
        sampled: [B, T] tokens whose sampler log-prob is usable.
        counted: [B, T] tokens of the sketch.
        log_ratio: [B, T] 0 where one of its log-probs is not usable.
    """
    x = np.where(counted, log_ratio, 0).astype(np.float64).clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    tokens = np.stack([counted, x, np.abs(x)], axis=-1)
    first = live.argmax(-1, keepdims=True) if live.size else np.zeros((len(live), 1), dtype=int)
    # Nothing is counted before the first live token.
    place = np.searchsorted(POSITION_STARTS, np.arange(live.shape[1]) - first, side="right") - 1
    rows, lengths = tokens.sum(1), live.sum(-1)
    size = np.searchsorted(LENGTH_STARTS, lengths, side="right") - 1
    np.add.at(part.positions, place[counted], tokens[counted])
    np.add.at(part.lengths, size[lengths > 0], rows[lengths > 0])
    n, total, _ = rows[rows[:, 0] > 0].T
    ratio = np.exp(total.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    missing = (lengths > 0) & ~(live & sampled).any(-1)
    part.responses[:] += (
        1,
        (lengths > 0).sum(),
        missing.sum(),
        n.size,
        ratio.sum(),
        ratio @ ratio,
        *((total > cap).sum() for cap in LOG_CAPS),
        *((np.abs(total) > level * n).sum() for level in MEAN_LEVELS),
        _latent(live, log_ratio),
    )


def _latent(live: NDArray[np.bool_], log_ratio: NDArray[np.float32]) -> int:
    """Masked tokens between live ones of their row whose ratio overflows. What is left and right of these is prompt
    and padding, which may hold anything."""
    begun = np.logical_or.accumulate(live, 1)
    goes_on = np.logical_or.accumulate(live[:, ::-1], 1)[:, ::-1]
    return int((begun & goes_on & ~live & (log_ratio > OVERFLOW)).sum())
