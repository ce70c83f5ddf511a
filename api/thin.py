"""Fewer points for a chart, without losing what a chart is looked at for."""

from __future__ import annotations

import math
from collections.abc import Sequence

KEPT_PER_BUCKET = 3


def thinned(values: Sequence[float], points: int) -> list[int]:
    """Indices, ascending, of at most `points` values; all of them when there are no more.

    Kept are the ends and, of equal stretches, the minimum, the maximum and the first value that is not finite.

    >>> thinned([0, 0, 9, 0, 0, 0, 0, 0, 0, 0], 5)
    [0, 2, 9]
    """
    n = len(values)
    if n <= points:
        return list(range(n))
    buckets = max((points - 2) // KEPT_PER_BUCKET, 1)
    kept = {0, n - 1}
    for bucket in range(buckets):
        stretch = range(bucket * n // buckets, (bucket + 1) * n // buckets)
        finite = [i for i in stretch if math.isfinite(values[i])]
        if finite:
            kept.add(min(finite, key=values.__getitem__))
            kept.add(max(finite, key=values.__getitem__))
        kept.update([i for i in stretch if not math.isfinite(values[i])][:1])
    return sorted(kept)
