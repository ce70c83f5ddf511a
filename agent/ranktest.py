"""Are the later values lower? Mann and Whitney's rank test, with ties.

U counts the pairs (earlier, later) in which the later value is lower, a tie as one half. Without a difference its mean
is n m / 2 and its variance

    n m / 12 ((N + 1) - sum(t^3 - t) / (N (N - 1)))        N = n + m, t = values in each group of ties

and the p-value is that of the normal approximation with a continuity correction of one half (Mann and Whitney 1947;
ties as in Lehmann, Nonparametrics, 1975). It asks for no scale and no distribution, so one wild value is one rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def p_lower(earlier: Sequence[float], later: Sequence[float]) -> float:
    """One-sided p-value of `later` being stochastically lower than `earlier`; 1 where either is empty or nothing
    differs. All values are finite."""
    n, m = len(earlier), len(later)
    if not n or not m:
        return 1.0
    lower = sum((y < x) + 0.5 * (y == x) for x in earlier for y in later)
    total = n + m
    ties = sum(t**3 - t for t in Counter((*earlier, *later)).values())
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    z = (lower - n * m / 2 - 0.5) / math.sqrt(variance)
    return 0.5 * math.erfc(z / math.sqrt(2))
