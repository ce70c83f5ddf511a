"""One step as signals and detectors read it, and what a signal is.

Several of them read the same sketch, so its running count of tokens is made once a step: 14 quantiles of 700 occupied
bins cost 14 bisections of one list. Plain lists, because turning tuples into arrays costs more than all the rest.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from functools import update_wrapper
from itertools import accumulate

from trimtab.hooks.controls import ClipBounds
from trimtab.hooks.records import StepSummary
from trimtab.hooks.sketch import BINS, LOWER_EDGES, SUMS, UPPER_EDGES, Sign, SignSketch

MIN_TOKENS = 100
"""Tokens of one sign below which it is not judged: its 5 % quantile would rest on fewer than five of them."""
_LOWER: list[float] = LOWER_EDGES.tolist()
_UPPER: list[float] = UPPER_EDGES.tolist()
_SIGNS = (Sign.NEGATIVE, Sign.ZERO, Sign.POSITIVE)  # in the order of `Sketch.signs`
_PLACES = {name: place for place, name in enumerate(SUMS)}


class Distribution:
    """The log-ratios of one sign in one sketch, to be asked several times."""

    __slots__ = ("_below", "n", "sketch")

    def __init__(self, sketch: SignSketch) -> None:
        self.sketch = sketch
        self._below = list(accumulate(sketch.counts, initial=0))
        """Tokens below each occupied bin, and all of them."""
        self.n = self._below[-1]

    def mean(self, name: str) -> float:
        """Mean of a token's share in the sum called `name`, one of `SUMS`."""
        return self.sketch.sums[_PLACES[name]] / self.n

    def quantile(self, q: float) -> float:
        """The log-ratio below which a share `q` lies, nats; see `quantile`."""
        target = q * self.n
        place = max(bisect_left(self._below, target), 1) - 1
        index = self.sketch.bins[place]
        lower, upper = _LOWER[index], _UPPER[index]
        if math.isinf(lower):
            return upper
        if math.isinf(upper):
            return lower
        return lower + (target - self._below[place]) / self.sketch.counts[place] * (upper - lower)

    def beyond(self, index: int, *, up: bool) -> int:
        """Tokens above bin `index`, or below it; those in it are not counted."""
        bins = self.sketch.bins
        return self.n - self._below[bisect_right(bins, index)] if up else self._below[bisect_left(bins, index)]

    def fraction_below(self, x: float) -> float:
        """Share of the tokens below x, interpolated inside the bin that x falls in: what `SignSketch` says of it."""
        if x == math.inf:
            return 1.0
        index, bins = bisect_right(_LOWER, x) - 1, self.sketch.bins
        place = bisect_left(bins, index)
        below = float(self._below[place])
        if 0 < index < BINS - 1 and place < len(bins) and bins[place] == index:
            lower = _LOWER[index]
            below += (x - lower) / (_UPPER[index] - lower) * self.sketch.counts[place]
        return below / self.n


def quantile(tokens: SignSketch, q: float) -> float:
    """The log-ratio below which a share `q` of `tokens` lies, interpolated inside its bin; an overflow bin gives its
    finite edge.

    `SignSketch.quantile` gives the middle of the bin, which suits a reader of one step. A detector of small shifts
    needs what varies smoothly with the distribution: bins span 3 %, the sampling noise of a 5 % quantile of 16k
    tokens about 1 %.
    """
    return Distribution(tokens).quantile(q)


def bounds(summary: StepSummary) -> ClipBounds:
    """The log-space bounds that the step's loss clipped by."""
    return summary.clip_bounds or ClipBounds.nominal(summary.applied)


class Step:
    """A summary, and what has been worked out of it."""

    __slots__ = ("_ample", "_means", "_parts", "bounds", "nominal", "summary")

    def __init__(self, summary: StepSummary) -> None:
        self.summary = summary
        self.bounds = bounds(summary)
        """The log-space bounds that the loss clipped by."""
        self.nominal = self.bounds if summary.clip_bounds is None else ClipBounds.nominal(summary.applied)
        """Those that the controls ask for."""
        self._parts = {name: tuple(map(Distribution, sketch.signs())) for name, sketch in summary.sketches.items()}
        self._ample = {
            (name, sign): tokens
            for name, parts in self._parts.items()
            for sign, tokens in zip(_SIGNS, parts, strict=True)
            if tokens.n >= MIN_TOKENS
        }
        self._means: dict[str, dict[str, float] | None] = {}

    def parts(self, sketch: str) -> tuple[Distribution, ...]:
        """The tokens of a sketch of each sign, negative first; empty where the sketch is not there."""
        return self._parts.get(sketch, ())

    def n(self, sketch: str) -> int:
        """Tokens of a sketch, of all signs; 0 where the sketch is not there."""
        return sum([tokens.n for tokens in self.parts(sketch)])

    def tokens(self, sketch: str, sign: Sign) -> Distribution | None:
        """The tokens of one sign, if there are enough of them to judge."""
        return self._ample.get((sketch, sign))

    def means(self, sketch: str) -> Mapping[str, float] | None:
        """Means over the tokens of all signs of each of `SUMS`, if there are enough tokens to judge."""
        if sketch not in self._means:
            n, parts = self.n(sketch), self.parts(sketch)
            columns = zip(*[tokens.sketch.sums for tokens in parts], strict=True)
            pooled = [sum(column) / n for column in columns] if n >= MIN_TOKENS else None
            self._means[sketch] = None if pooled is None else dict(zip(SUMS, pooled, strict=True))
        return self._means[sketch]


class Signal:
    """A pure function of one step to a number: None where it is not observed. What it is, is its docstring."""

    def __init__(self, read: Callable[[Step], float | None]) -> None:
        self.read = read
        """Of a step that other signals are read from too."""
        update_wrapper(self, read)

    def __call__(self, summary: StepSummary) -> float | None:
        """Of a summary."""
        return self.read(Step(summary))


def told(read: Callable[[Step], float | None], what: str) -> Signal:
    """A signal made by a function that makes several."""
    read.__doc__ = what
    return Signal(read)
