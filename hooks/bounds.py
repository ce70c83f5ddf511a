"""How a trainer's own numbers and our controls are told apart, where they are not the same number."""

from __future__ import annotations

import math

LARGE = 1e10
"""Stands for infinity where a trainer multiplies by its bound: infinity times an advantage of 0 is not a number."""


def lower_width(epsilon: float) -> float:
    """A lower clip half-width as our control: 1 and all above it never clip."""
    return min(float(epsilon), 1.0)


def dual_shown(bound: float | None) -> float:
    """A dual clip bound as our control; None and anything beyond `LARGE` are off."""
    return math.inf if bound is None or bound >= LARGE else float(bound)


def dual_told(bound: float) -> float:
    """Our control as a dual clip bound, for trainers that insist on one above 1 and multiply by it."""
    return min(max(bound, math.nextafter(1.0, 2.0)), LARGE)


def dual_or_none(bound: float) -> float | None:
    """The same for trainers in which None is off."""
    return None if bound == math.inf else dual_told(bound)


def band_told(bound: float) -> float:
    """An upper bound of importance weights for trainers that compute with it."""
    return min(bound, LARGE)


def band_shown(bound: float | None) -> float:
    """An upper bound of importance weights as our control."""
    return math.inf if bound is None or bound >= LARGE else float(bound)
