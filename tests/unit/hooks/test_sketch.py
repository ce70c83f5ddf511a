"""The sketch against exact order statistics and counts of the values it was made from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from trimtab.hooks.sketch import (
    BINS,
    CELLS,
    LOWER_EDGES,
    MAX_COUNT,
    MAX_LOG_RATIO,
    MIDDLES,
    SUMS,
    UPPER_EDGES,
    ZERO_BIN,
    SignSketch,
    Sketch,
    SketchError,
    bin_index,
    bins_of_cells,
    cell_of,
)

Values = NDArray[np.float32]
values = arrays(np.float32, st.integers(1, 200), elements=st.floats(-31, 31, width=32))
any_values = arrays(np.float32, st.integers(0, 200), elements=st.floats(-(2.0**100), 2.0**100, width=32))


def sketch_of(log_ratios: Values) -> SignSketch:
    bins, counts = np.unique(bin_index(log_ratios), return_counts=True)
    return SignSketch(bins=tuple(bins.tolist()), counts=tuple(counts.tolist()), sums=tuple(sums_of(log_ratios)))


def sums_of(log_ratios: Values) -> list[float]:
    x = np.clip(log_ratios.astype(np.float64), -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return [float(term.sum()) for term in (x, x**2, np.exp(x), np.exp(2 * x), np.expm1(x) - x)]


@given(any_values)
def test_every_value_lies_in_its_bin(x: Values) -> None:
    index = bin_index(x)
    assert ((index >= 0) & (index < BINS)).all()
    assert ((LOWER_EDGES[index] <= x) & (x <= UPPER_EDGES[index])).all()


def test_edges_and_their_neighbours() -> None:
    edges = LOWER_EDGES[1:]
    single = edges.astype(np.float32)
    assert (single == edges).all()
    above = edges > 0
    assert (bin_index(single)[above] == np.arange(1, BINS)[above]).all()
    below = np.nextafter(single, np.float32(-np.inf))
    assert (bin_index(below)[above] == np.arange(0, BINS - 1)[above]).all()
    assert (bin_index(-single) == BINS - 1 - bin_index(single)).all()
    assert bin_index(np.array([0.0, -0.0, 1e-30, -1e-30], dtype=np.float32)).tolist() == [ZERO_BIN] * 4


@given(values, st.floats(0, 1))
def test_quantiles_are_within_the_promised_error_of_the_exact_ones(x: Values, q: float) -> None:
    exact = float(np.sort(x)[max(math.ceil(q * x.size), 1) - 1])
    assert abs(sketch_of(x).quantile(q) - exact) <= max(1e-4, 0.02 * abs(exact))


@given(values, st.floats(-40, 40))
def test_fraction_below_is_within_the_bin_that_the_point_falls_in(x: Values, point: float) -> None:
    index = bin_index(x)
    low = float((index < bin_index(np.float32([point]))[0]).mean())
    high = float((index <= bin_index(np.float32([point]))[0]).mean())
    assert low - 1e-9 <= sketch_of(x).fraction_below(point) <= high + 1e-9


@given(values, st.sampled_from([-math.inf, -1.7e308, 1.7e308, math.inf]))
def test_fraction_below_the_largest_numbers_is_all_or_nothing(x: Values, point: float) -> None:
    assert sketch_of(x).fraction_below(point) == float(point > 0)


@given(any_values, any_values)
def test_merging_is_the_sketch_of_both(x: Values, y: Values) -> None:
    merged = sketch_of(x).merged(sketch_of(y))
    both = sketch_of(np.concatenate([x, y]))
    assert (merged.bins, merged.counts) == (both.bins, both.counts)
    assert merged.sums == pytest.approx(both.sums, rel=1e-9, abs=1e-9)
    assert merged.n == x.size + y.size


@given(any_values)
def test_cells_fold_into_bins(x: Values) -> None:
    cells = np.bincount(cell_of(x), minlength=CELLS).astype(np.float64)
    assert (bins_of_cells(cells) == np.bincount(bin_index(x), minlength=BINS)).all()


@given(any_values)
def test_rows_are_made_as_the_checked_constructor_makes_them(x: Values) -> None:
    counts = np.bincount(bin_index(x), minlength=BINS).astype(np.float64)
    sums = np.array([sums_of(x), [0.0] * len(SUMS), sums_of(x)])
    rows = SignSketch.rows(np.stack([counts, 0 * counts, counts]), sums)
    assert rows == [sketch_of(x), SignSketch(), sketch_of(x)]


@given(arrays(np.float32, st.integers(1, 200), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_sums_in_single_precision_are_accepted(values: Values) -> None:
    x = np.clip(values, np.float32(-MAX_LOG_RATIO), np.float32(MAX_LOG_RATIO))
    terms = (x, x * x, np.exp(x), np.exp(x) * np.exp(x), np.expm1(x) - x)
    bins, counts = np.unique(bin_index(values), return_counts=True)
    sums = tuple(float(term.sum()) for term in terms)
    assert SignSketch(bins=tuple(bins.tolist()), counts=tuple(counts.tolist()), sums=sums).n == len(values)


def test_middles_are_within_the_error_of_everything_in_their_bin() -> None:
    inner = slice(1, BINS - 1)
    half_width = (UPPER_EDGES[inner] - LOWER_EDGES[inner]) / 2
    nearest = np.minimum(np.abs(UPPER_EDGES[inner]), np.abs(LOWER_EDGES[inner]))
    assert (np.diff(MIDDLES) > 0).all()
    assert (half_width <= np.maximum(1e-4, 0.02 * nearest)).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bins": (1,), "counts": ()}, "1 bins but 0 counts"),
        ({"bins": (2, 1), "counts": (1, 1)}, "bins: must ascend"),
        ({"bins": (1, 1), "counts": (1, 1)}, "bins: must ascend"),
        ({"bins": (-1,), "counts": (1,)}, r"bins: -1\.\.-1 is outside"),
        ({"bins": (BINS,), "counts": (1,)}, "is outside"),
        ({"bins": (1,), "counts": (0,)}, "counts: every occupied bin"),
        ({"bins": (1,), "counts": (-4,)}, "counts: every occupied bin"),
        ({"sums": (0.0,)}, "sums: 1 values but 5 names"),
        ({"sums": (0.0, 0.0, math.nan, 0.0, 0.0)}, "sums: every sum is finite"),
        ({"bins": (600,), "counts": (200,)}, r"sums\.ratio: 0 is not in"),
        ({"sums": (1.0, 1.0, 1.0, 1.0, 1.0)}, r"sums\.log_ratio: 1 is not in \[-?0, 0\]"),
        ({"bins": (600,), "counts": (10**400,)}, "counts: 10*0 tokens in all, but counts stay below 2"),
        ({"bins": (600, 601), "counts": (MAX_COUNT // 2, MAX_COUNT // 2)}, "counts: .* stay below 2"),
        ({"bins": (ZERO_BIN,), "counts": (2,), "sums": (1e200, 0.0, 2.0, 2.0, 0.0)}, r"sums\.log_ratio: 1e\+200 is"),
        ({"bins": (ZERO_BIN,), "counts": (2,), "sums": (0.0, -1.0, 2.0, 2.0, 0.0)}, r"sums\.log_ratio_sq: -1 is not"),
        ({"bins": (ZERO_BIN,), "counts": (2,), "sums": (2.0, 1.0, 2.0, 2.0, 0.0)}, r"sums\.log_ratio_sq: 1 is below"),
        ({"bins": (ZERO_BIN,), "counts": (2,), "sums": (0.0, 0.0, 2.0, 1.0, 0.0)}, r"sums\.ratio_sq: 1 is below"),
        ({"bins": (ZERO_BIN,), "counts": (2,), "sums": (0.0, 0.0, 2.0, 2.0, -1.0)}, r"sums\.k3: -1 is not in"),
        ({"bins": (ZERO_BIN,), "counts": (2,), "sums": (0.0, 0.0, 2.0, 1e300, 0.0)}, r"sums\.ratio_sq: 1e\+300 is"),
    ],
)
def test_a_sketch_that_contradicts_itself_is_refused(fields: dict[str, tuple[float, ...]], message: str) -> None:
    with pytest.raises(SketchError, match=message):
        SignSketch(**fields)  # type: ignore[arg-type]


def test_sketches_of_other_edges_are_refused() -> None:
    with pytest.raises(SketchError, match="edges_id: 'log32-v1' is not 'half32-v1'"):
        Sketch(edges_id="log32-v1")


def test_no_tokens_have_no_quantile() -> None:
    assert math.isnan(SignSketch().quantile(0.5))
    assert math.isnan(SignSketch().fraction_below(0.0))
