"""Many steps as one: merging is addition, in any order and any grouping."""

import math
from functools import reduce

import numpy as np
import pytest
from agent_runs import sign_sketch, step_summary
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.hooks.records import NonFinite, StepSummary
from trimtab.hooks.sketch import SUMS, SignSketch
from trimtab.storage.rollups import LEVELS, SignalRollup, Stretch, first_of

LOG_RATIOS = st.lists(st.floats(-25, 25, width=32), max_size=40)
STEPS = st.lists(st.tuples(LOG_RATIOS, LOG_RATIOS), min_size=1, max_size=6)


def same_tokens(one: SignSketch, other: SignSketch) -> bool:
    sums = all(math.isclose(one.sum(name), other.sum(name), rel_tol=1e-12, abs_tol=1e-9) for name in SUMS)
    return sums and (one.bins, one.counts) == (other.bins, other.counts)


@settings(deadline=None)
@given(STEPS, st.randoms(use_true_random=False))
def test_a_merged_sketch_is_the_sketch_of_all_the_tokens(steps: list[tuple[list[float], list[float]]], random) -> None:
    stretches = [Stretch.of(step_summary(i, update=signs)) for i, signs in enumerate(steps)]
    random.shuffle(stretches)
    merged = reduce(Stretch.merged, stretches)
    negative = [x for below, _ in steps for x in below]
    positive = [x for _, above in steps for x in above]
    assert same_tokens(merged.sketches["update"].negative, sign_sketch(negative))
    assert same_tokens(merged.sketches["update"].positive, sign_sketch(positive))
    assert (merged.summaries, merged.first_step, merged.last_step) == (len(steps), 0, len(steps) - 1)


def test_a_stretch_adds_totals_and_counts_and_keeps_what_only_some_steps_have() -> None:
    one = step_summary(3, update=([0.1], [0.2]), entropy=0.5, tokens=10, nonfinite={"entropy": NonFinite(nan=2)})
    other = step_summary(7, mismatch=([0.1], []), entropy=0.25, tokens=30, nonfinite={"entropy": NonFinite(posinf=1)})
    merged = Stretch.of(one).merged(Stretch.of(other))
    assert merged.negative.tokens + merged.positive.tokens == 40
    assert merged.negative.entropy == 5 * 0.5 + 15 * 0.25
    assert merged.nonfinite == {"entropy": NonFinite(nan=2, posinf=1)}
    assert sorted(merged.sketches) == ["mismatch", "update"]
    assert merged.sketches["mismatch"] == other.sketches["mismatch"]
    assert (merged.first_step, merged.last_step) == (3, 7)


def test_a_stretch_of_one_step_is_that_step() -> None:
    summary = step_summary(5, update=([0.1, -2.0], [0.2]), shadow=([0.0], [0.0]), entropy=0.5)
    stretch = Stretch.of(summary)
    rebuilt = StepSummary(
        job="run",
        attempt=1,
        step=5,
        sketches=stretch.sketches,
        negative=stretch.negative,
        positive=stretch.positive,
        applied=summary.applied,
        capabilities=summary.capabilities,
    )
    assert rebuilt == summary


VALUES = st.one_of(st.floats(-1e9, 1e9), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0]))
NAMES = ("a", "b", "c")


@st.composite
def observed(draw: st.DrawFn) -> dict[int, dict[str, float]]:
    """Steps of one stretch of 100, each with some of the signals."""
    steps = draw(st.sets(st.integers(200, 299), min_size=1, max_size=30))
    return {
        step: draw(st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1, max_size=3)) for step in sorted(steps)
    }


def rolled(level: int, steps: dict[int, dict[str, float]]) -> SignalRollup:
    """One step at a time, merged in the order given."""
    parts = [
        SignalRollup.of(level, list(signals), [step], np.array([list(signals.values())]))
        for step, signals in steps.items()
    ]
    return reduce(SignalRollup.merged, parts)


@settings(deadline=None)
@given(observed(), st.randoms(use_true_random=False))
def test_signals_roll_up_to_what_their_values_say_in_any_order(steps: dict[int, dict[str, float]], random) -> None:
    shuffled = list(steps.items())
    random.shuffle(shuffled)
    rollup = rolled(100, dict(shuffled))
    assert (rollup.first, rollup.last, rollup.steps) == (200, max(steps), len(steps))
    for name in {name for signals in steps.values() for name in signals}:
        values = {step: signals[name] for step, signals in steps.items() if name in signals}
        finite = {step: value for step, value in values.items() if math.isfinite(value)}
        odd = {step: value for step, value in values.items() if not math.isfinite(value)}
        row = rollup.table[rollup.names.index(name)]
        assert row["finite"] == len(finite)
        assert row["nan"] == sum(map(math.isnan, odd.values()))
        assert row["posinf"] == list(odd.values()).count(math.inf)
        assert row["neginf"] == list(odd.values()).count(-math.inf)
        if finite:
            assert (row["low"], row["high"]) == (min(finite.values()), max(finite.values()))
            assert finite[200 + int(row["low_at"])] == min(finite.values())
            assert finite[200 + int(row["high_at"])] == max(finite.values())
            assert math.isclose(row["total"], math.fsum(finite.values()), rel_tol=1e-9, abs_tol=1e-3)
        points = rollup.points(name)
        assert [step for step, _ in points] == sorted({step for step, _ in points})
        assert {step for step, value in points if not math.isfinite(value)} == ({min(odd)} if odd else set())
        assert all(value == values[step] or math.isnan(value) for step, value in points if math.isfinite(value))


@settings(deadline=None)
@given(observed())
def test_all_steps_at_once_are_the_same_as_one_at_a_time(steps: dict[int, dict[str, float]]) -> None:
    full = {step: {name: signals.get(name, 0.5) for name in NAMES} for step, signals in steps.items()}
    values = np.array([list(signals.values()) for signals in full.values()])
    at_once, singly = SignalRollup.of(100, NAMES, list(full), values), rolled(100, full)
    for column in ("low", "high", "low_at", "high_at", "finite", "nan", "posinf", "neginf", "odd"):
        assert at_once.table[column].tolist() == singly.table[column].tolist()
    odd = at_once.table["odd"] > 0
    assert at_once.table["odd_at"][odd].tolist() == singly.table["odd_at"][odd].tolist()


def test_the_kind_that_is_not_finite_first_is_the_one_that_is_drawn() -> None:
    values = {203: math.nan, 202: 1.0, 201: math.inf, 204: -math.inf}
    rollup = rolled(100, {step: {"a": value} for step, value in values.items()})
    assert rollup.points("a") == [(201, math.inf), (202, 1.0)]


def test_a_rollup_survives_its_bytes() -> None:
    rollup = rolled(10, {step: {"a": step / 7, "b": math.nan} for step in range(20, 27)})
    data = rollup.packed()
    assert len(data) == 2 * 32
    again = SignalRollup.read(data, level=10, first=20, last=26, steps=7, names=["a", "b"])
    assert again.table.tolist() == rollup.table.tolist()
    assert again.points("a") == [(20, 20 / 7), (26, 26 / 7)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_stretch_begins_at_a_multiple_of_its_level(level: int) -> None:
    assert [first_of(step, level) for step in (0, level - 1, level, 7 * level + 3)] == [0, 0, level, 7 * level]
