"""Mergeable sketch of the log-ratio distribution, split by advantage sign.

Edges. A log-ratio is rounded to float16, and its bin is given by the sign, the exponent and the top five of the ten
fraction bits of that: 32 bins an octave from 2^-14 to 32, one zero bin for anything smaller, one overflow bin a side. A
bin spans at most 3.2 % of its lower edge, so its middle is within 1.6 % of anything in it (6.1e-5 in the zero bin),
inside the promised |quantile error| <= max(1e-4, 2 % of |x|). The raw bits, shifted, are the *cell* that a device
counts in, without searching or clamping; `bins_of_cells` folds cells into bins. Because of the rounding, edges lie half
a float16 step below the round numbers. `EDGES_ID` names this choice: sketches of other edges never merge.

Merge. Everything is a count or a sum, so merging is addition: over micro-batches, ranks and, for roll-ups, steps. On a
device the sums live in one float64 vector (float32 stops counting at 2^24).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import lt
from typing import Self

import numpy as np
from numpy.typing import NDArray

EDGES_ID = "half32-v1"
BINS_PER_OCTAVE = 32
MIN_EXPONENT = -14
MAX_EXPONENT = 5
SIDE_BINS = (MAX_EXPONENT - MIN_EXPONENT) * BINS_PER_OCTAVE + 1
"""Bins on one side of the zero bin, the overflow bin included."""
ZERO_BIN = SIDE_BINS
BINS = 2 * SIDE_BINS + 1
MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to +-20 before any exponential; the bins keep the unclamped value."""

SUMS = ("log_ratio", "log_ratio_sq", "ratio", "ratio_sq", "k3")
"""Names of `SignSketch.sums`, in order. With x the clamped log-ratio: x, x^2, e^x, e^2x, e^x - 1 - x (nats)."""
MAX_COUNT = 2**53
"""Counts stay below it: a float64, which they are summed in and stored as, stops counting there."""
_SLACK = 1e-3
"""Relative rounding that a sum is allowed, so that float32 arithmetic passes."""
_UNDERFLOW = 1e-30
"""Square of a term below which float32 may give 0."""
_TERMS = (
    (-MAX_LOG_RATIO, MAX_LOG_RATIO),
    (0.0, MAX_LOG_RATIO**2),
    (math.exp(-MAX_LOG_RATIO), math.exp(MAX_LOG_RATIO)),
    (math.exp(-2 * MAX_LOG_RATIO), math.exp(2 * MAX_LOG_RATIO)),
    # e^x - 1 - x is cancellation near 0, and may come out below it.
    (-1e-6, math.exp(MAX_LOG_RATIO)),
)
"""Least and greatest that one token adds to each of `SUMS`."""
_SQUARES = tuple((SUMS.index(name), SUMS.index(f"{name}_sq")) for name in ("log_ratio", "ratio"))
"""Places of sums, each with that of the sum of the squares of its terms."""


class Sign(StrEnum):
    """Sign of a token's advantage."""

    NEGATIVE = "negative"
    ZERO = "zero"
    POSITIVE = "positive"


def _positive_edges() -> NDArray[np.float64]:
    """Lower edges of the bins right of the zero bin, ascending; the last is the overflow bin's."""
    octaves = np.exp2(np.arange(MIN_EXPONENT, MAX_EXPONENT, dtype=np.float64))
    fractions = 1.0 + np.arange(BINS_PER_OCTAVE, dtype=np.float64) / BINS_PER_OCTAVE
    rounds_up_from = np.append((octaves[:, None] * fractions).ravel(), 2.0**MAX_EXPONENT)
    below = np.nextafter(rounds_up_from.astype(np.float16), np.float16(0))
    return (rounds_up_from + below) / 2


_EDGES = _positive_edges()
LOWER_EDGES: NDArray[np.float64] = np.concatenate([[-np.inf], -_EDGES[::-1], _EDGES])
"""[BINS] lower edge of each bin, nats."""
UPPER_EDGES: NDArray[np.float64] = np.append(LOWER_EDGES[1:], np.inf)
"""[BINS] upper edge of each bin, nats."""


def _middles() -> NDArray[np.float64]:
    middles = np.empty(BINS)
    middles[1:-1] = (LOWER_EDGES[1:-1] + UPPER_EDGES[1:-1]) / 2
    middles[0], middles[-1] = -(2.0**MAX_EXPONENT), 2.0**MAX_EXPONENT
    return middles


MIDDLES: NDArray[np.float64] = _middles()
"""[BINS] the value that stands for a bin, nats; an overflow bin stands for its finite edge."""


CELL_SHIFT = 5
"""Fraction bits of float16 that a cell drops."""
CELLS = 1 << (16 - CELL_SHIFT)
"""Cells of one advantage sign: first the negative log-ratios, then the others, each by ascending magnitude."""
_SIDE_CELLS = CELLS // 2
_ZERO_CELLS = BINS_PER_OCTAVE
"""Cells of one side that belong to the zero bin: the subnormal numbers, which lie below 2^-14."""


def cell_of(log_ratio: NDArray[np.float32]) -> NDArray[np.int16]:
    """Cell of each finite log-ratio; same shape, values in 0..CELLS - 1. The reference for every device version."""
    half = np.clip(log_ratio, -(2.0**MAX_EXPONENT), 2.0**MAX_EXPONENT).astype(np.float16)
    return (half.view(np.int16) >> CELL_SHIFT) + np.int16(_SIDE_CELLS)


def bins_of_cells(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """[..., BINS] counts by bin from [..., CELLS] counts by cell."""
    below, above = cells[..., :_SIDE_CELLS], cells[..., _SIDE_CELLS:]
    first, last = _ZERO_CELLS, _ZERO_CELLS + SIDE_BINS - 1
    counts = np.empty((*cells.shape[:-1], BINS))
    counts[..., ZERO_BIN] = below[..., :first].sum(-1) + above[..., :first].sum(-1)
    counts[..., 1:ZERO_BIN] = below[..., first:last][..., ::-1]
    counts[..., ZERO_BIN + 1 : -1] = above[..., first:last]
    counts[..., 0], counts[..., -1] = below[..., last:].sum(-1), above[..., last:].sum(-1)
    return counts


def bin_index(log_ratio: NDArray[np.float32]) -> NDArray[np.int64]:
    """Bin of each finite log-ratio; same shape."""
    cell = cell_of(log_ratio).astype(np.int64)
    distance = np.clip(cell % _SIDE_CELLS - (_ZERO_CELLS - 1), 0, SIDE_BINS)
    return np.where(cell < _SIDE_CELLS, ZERO_BIN - distance, ZERO_BIN + distance)


def quantile(bins: Sequence[int], weights: Sequence[float], q: float) -> float:
    """The middle of the first of the ascending `bins` that a share `q` of the weight lies in or below; NaN without
    weight."""
    if not weights:
        return math.nan
    cumulative = np.cumsum(weights)
    # Rounding of a sum must not push q = 1 past the last bin.
    place = int(np.searchsorted(cumulative, q * cumulative[-1]))
    return float(MIDDLES[bins[min(place, len(bins) - 1)]])


def fraction_below(bins: Sequence[int], weights: Sequence[float], x: float) -> float:
    """Share of the weight below x, interpolated inside the bin that x falls in; NaN without weight."""
    if not weights:
        return math.nan
    places, heights = np.asarray(bins), np.asarray(weights, dtype=np.float64)
    lower, upper = LOWER_EDGES[places], UPPER_EDGES[places]
    inside = np.isfinite(lower) & np.isfinite(upper)
    share = (x >= upper).astype(np.float64)
    share[inside] = (np.clip(x, lower[inside], upper[inside]) - lower[inside]) / (upper[inside] - lower[inside])
    return float((heights * share).sum() / heights.sum())


class SketchError(ValueError):
    """A sketch whose parts contradict each other; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignSketch:
    """The tokens of one advantage sign: occupied bins, ascending, with their counts, and the sums named in `SUMS`."""

    bins: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    sums: tuple[float, ...] = (0.0,) * len(SUMS)

    def __post_init__(self) -> None:
        if len(self.bins) != len(self.counts):
            raise SketchError(f"bins, counts: {len(self.bins)} bins but {len(self.counts)} counts")
        if not all(map(lt, self.bins, self.bins[1:])):
            raise SketchError("bins: must ascend without repeats")
        if self.bins and not (self.bins[0] >= 0 and self.bins[-1] < BINS):
            raise SketchError(f"bins: {self.bins[0]}..{self.bins[-1]} is outside 0..{BINS - 1}")
        if self.counts and min(self.counts) < 1:
            raise SketchError("counts: every occupied bin holds at least one token")
        if len(self.sums) != len(SUMS):
            raise SketchError(f"sums: {len(self.sums)} values but {len(SUMS)} names ({', '.join(SUMS)})")
        if not all(map(math.isfinite, self.sums)):
            raise SketchError("sums: every sum is finite (clamp log-ratios, count what is not finite elsewhere)")
        self._check_sums()

    def _check_sums(self) -> None:
        """Raise `SketchError` unless the sums can be those of as many clamped log-ratios as the bins hold."""
        n = self.n
        if n >= MAX_COUNT:
            raise SketchError(f"counts: {n} tokens in all, but counts stay below 2^53")
        for name, value, (low, high) in zip(SUMS, self.sums, _TERMS, strict=True):
            least, most = n * (low - _SLACK * abs(low)), n * high * (1 + _SLACK)
            if not least <= value <= most:
                raise SketchError(
                    f"sums.{name}: {value:g} is not in [{least:g}, {most:g}], where the sum over {n} tokens must lie; "
                    f"log-ratios are clamped to +-{MAX_LOG_RATIO:g}"
                )
        for of, squared in _SQUARES if n else ():
            # The smallest squares underflow to 0.
            least, value = self.sums[of] ** 2 / n * (1 - _SLACK) - n * _UNDERFLOW, self.sums[squared]
            if value < least:
                raise SketchError(f"sums.{SUMS[squared]}: {value:g} is below {SUMS[of]}^2 / {n} tokens, {least:g}")

    @classmethod
    def rows(cls, counts: NDArray[np.float64], sums: NDArray[np.float64]) -> list[Self]:
        """From [rows, BINS] counts, none negative, and [rows, m] finite sums: valid as made, so no check runs again."""
        occupied = np.flatnonzero(counts > 0)
        ends = np.searchsorted(occupied, np.arange(len(counts) + 1) * BINS).tolist()
        bins = (occupied.astype(np.int32) % np.int32(BINS)).tolist()
        tokens = counts.ravel()[occupied].astype(np.int64).tolist()
        made = []
        for start, end, row in zip(ends, ends[1:], sums.tolist(), strict=False):
            self = object.__new__(cls)
            object.__setattr__(self, "bins", tuple(bins[start:end]))
            object.__setattr__(self, "counts", tuple(tokens[start:end]))
            object.__setattr__(self, "sums", tuple(row))
            made.append(self)
        return made

    @property
    def n(self) -> int:
        """Number of tokens."""
        return sum(self.counts)

    def sum(self, name: str) -> float:
        """The sum called `name`, one of `SUMS`."""
        return self.sums[SUMS.index(name)]

    def quantile(self, q: float) -> float:
        """The log-ratio of rank ceil(q n), to the error stated above; NaN without tokens."""
        return quantile(self.bins, self.counts, q)

    def fraction_below(self, x: float) -> float:
        """Fraction of tokens with log-ratio < x, interpolated inside the bin that x falls in; NaN without tokens."""
        return fraction_below(self.bins, self.counts, x)

    def merged(self, other: SignSketch) -> SignSketch:
        """Both sets of tokens together."""
        total = dict(zip(self.bins, self.counts, strict=True))
        for index, count in zip(other.bins, other.counts, strict=True):
            total[index] = total.get(index, 0) + count
        bins = tuple(sorted(total))
        sums = tuple(a + b for a, b in zip(self.sums, other.sums, strict=True))
        return SignSketch(bins=bins, counts=tuple(total[index] for index in bins), sums=sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """One log-ratio's distribution over the live tokens of a step, by advantage sign.

    >>> tokens = SignSketch(bins=(ZERO_BIN,), counts=(3,), sums=(0.0, 0.0, 3.0, 3.0, 0.0))
    >>> Sketch(negative=tokens).merged(Sketch(negative=tokens)).negative.n
    6
    """

    edges_id: str = EDGES_ID
    negative: SignSketch = SignSketch()
    zero: SignSketch = SignSketch()
    positive: SignSketch = SignSketch()

    def __post_init__(self) -> None:
        if self.edges_id != EDGES_ID:
            raise SketchError(
                f"edges_id: {self.edges_id!r} is not {EDGES_ID!r}; sketches of other edges cannot be read or merged"
            )

    def sign(self, sign: Sign) -> SignSketch:
        """The part of one advantage sign."""
        return {Sign.NEGATIVE: self.negative, Sign.ZERO: self.zero, Sign.POSITIVE: self.positive}[sign]

    def signs(self) -> Iterator[SignSketch]:
        """The three parts, negative first."""
        yield from (self.negative, self.zero, self.positive)

    @property
    def n(self) -> int:
        """Number of tokens of all signs."""
        return self.negative.n + self.zero.n + self.positive.n

    def sum(self, name: str) -> float:
        """The sum called `name`, one of `SUMS`, over the tokens of all signs."""
        return sum(part.sum(name) for part in self.signs())

    @property
    def pooled(self) -> SignSketch:
        """All tokens, whatever their sign."""
        return self.negative.merged(self.zero).merged(self.positive)

    def merged(self, other: Sketch) -> Sketch:
        """Both sets of tokens together: over micro-batches, ranks or steps."""
        return Sketch(
            negative=self.negative.merged(other.negative),
            zero=self.zero.merged(other.zero),
            positive=self.positive.merged(other.positive),
        )
