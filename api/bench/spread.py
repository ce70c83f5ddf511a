"""The middle of what was measured, and how far it scatters."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, and what a tenth lies below and above."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Of two values or more."""
        values = list(values)
        tenths = statistics.quantiles(values, n=10)
        return cls(median=statistics.median(values), p10=tenths[0], p90=tenths[-1])
