"""Fewer points for charts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.thin import thinned


@given(st.lists(st.floats(), max_size=400), st.integers(5, 60))
def test_never_more_points_than_asked_for_and_never_without_the_extremes(values: list[float], points: int) -> None:
    kept = thinned(values, points)
    assert kept == sorted(set(kept))
    assert len(kept) <= points
    if values:
        assert {kept[0], kept[-1]} == {0, len(values) - 1}
    finite = [value for value in values if math.isfinite(value)]
    if finite:
        shown = [values[i] for i in kept if math.isfinite(values[i])]
        assert (min(shown), max(shown)) == (min(finite), max(finite))
    assert any(not math.isfinite(value) for value in values) == any(not math.isfinite(values[i]) for i in kept)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_short_series_is_left_alone(n: int) -> None:
    assert thinned([0.0] * n, 5) == list(range(n))
