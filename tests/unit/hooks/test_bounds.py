"""Trainers' numbers and our controls, there and back."""

from __future__ import annotations

import math

import pytest

from trimtab.hooks import bounds


@pytest.mark.parametrize(("theirs", "ours"), [(None, math.inf), (1e10, math.inf), (math.inf, math.inf), (3.0, 3.0)])
def test_bounds_that_are_off_are_infinite(theirs: float | None, ours: float) -> None:
    assert bounds.dual_shown(theirs) == ours
    assert bounds.band_shown(theirs) == ours


def test_what_a_trainer_computes_with_is_finite_and_what_it_insists_on() -> None:
    assert (bounds.dual_told(math.inf), bounds.dual_told(3.0), bounds.band_told(math.inf)) == (1e10, 3.0, 1e10)
    assert 1.0 < bounds.dual_told(1.0) < 1.0 + 1e-15
    assert (bounds.dual_or_none(math.inf), bounds.dual_or_none(3.0)) == (None, 3.0)


def test_a_lower_width_above_one_never_clips() -> None:
    assert (bounds.lower_width(10.0), bounds.lower_width(0.2)) == (1.0, 0.2)
