"""The rank test against scipy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.agent.ranktest import p_lower

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("shift", [-1.0, 0.0, 0.7])
@pytest.mark.parametrize("sizes", [(5, 5), (20, 20), (7, 31)])
def test_it_is_scipys_asymptotic_test(sizes: tuple[int, int], shift: float, ties: bool) -> None:
    rng = np.random.default_rng()
    x, y = rng.normal(0, 1, sizes[0]), rng.normal(-shift, 1, sizes[1])
    if ties:
        x, y = x.round(), y.round()
    # scipy asks whether its first sample is larger than its second.
    expected = stats.mannwhitneyu(x, y, alternative="greater", method="asymptotic", use_continuity=True).pvalue
    assert p_lower(x.tolist(), y.tolist()) == pytest.approx(expected, rel=1e-9)


def test_without_values_or_without_a_difference_nothing_is_lower() -> None:
    assert p_lower([], [1.0]) == p_lower([1.0], []) == p_lower([1.0] * 9, [1.0] * 9) == 1.0


@given(st.lists(st.floats(-1e6, 1e6), max_size=30), st.lists(st.floats(-1e6, 1e6), max_size=30))
def test_it_is_a_probability(x: list[float], y: list[float]) -> None:
    assert 0.0 <= p_lower(x, y) <= 1.0
