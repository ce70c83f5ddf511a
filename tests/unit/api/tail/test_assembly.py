"""Rows into steps: merged, in order, told once, and in a new attempt after a resume."""

import pytest

from trimtab.api.tail.assembly import Assembly, Axis, LoggedStep
from trimtab.api.tail.source import Row

START = Assembly(attempt=100)


def row(step: int | None, time: float | None = None, **values: float) -> Row:
    return Row(step=step, time=time, values=values)


def taken(*rows: Row, axis: Axis | None = None, begin: Assembly = START) -> tuple[Assembly, list[LoggedStep]]:
    return begin.taking(rows, axis or Axis(), 5.0)


def told(steps: list[LoggedStep]) -> list[tuple[int, int, dict[str, float]]]:
    return [(step.attempt, step.step, step.values) for step in steps]


def test_a_step_is_whole_when_a_later_one_comes() -> None:
    state, done = taken(row(0, 1.0, a=1), row(0, 3.0, b=2), row(0, 2.0, c=3), row(1, 4.0, a=1))
    assert told(done) == [(100, 0, {"a": 1, "b": 2, "c": 3})]
    assert (done[0].time, done[0].whole) == (3.0, True)
    state, done = state.quiet()
    assert told(done) == [(100, 1, {"a": 1})]
    assert not done[0].whole
    assert state.quiet() == (state, [])


def test_rows_that_come_twice_count_once() -> None:
    state, done = taken(row(0, a=1), row(0, a=1), row(1, a=1), row(1, a=1), row(2, a=3))
    assert told(done) == [(100, 0, {"a": 1}), (100, 1, {"a": 1})]
    assert state.again == 2
    state, done = state.quiet()
    again, more = taken(row(2, a=3), begin=state)
    assert more == []
    assert (again.again, again.late) == (3, 0)


def test_the_same_key_for_an_earlier_step_is_a_resume() -> None:
    state, done = taken(*(row(step, a=step) for step in range(5)), *(row(step, a=-step) for step in (3, 4, 5)))
    first = [(100, step, {"a": step}) for step in range(5)]
    assert told(done) == [*first, (101, 3, {"a": -3}), (101, 4, {"a": -4})]
    assert state.attempt == 101


def test_another_key_for_an_earlier_step_is_late_and_left_out() -> None:
    state, done = taken(row(0, a=0), row(1, a=1), row(2, a=2), row(1, b=9), row(3, a=3))
    assert [step for _, step, _ in told(done)] == [0, 1, 2]
    assert all("b" not in values for _, _, values in told(done))
    assert (state.late, state.attempt) == (1, 100)


def test_a_log_that_begins_anew_is_a_new_attempt() -> None:
    begin = Row(step=None, restart=True)
    state, done = taken(begin, row(0, a=1), begin, row(0, a=2), row(7, a=2))
    assert told(done) == [(100, 0, {"a": 1}), (101, 0, {"a": 2})]
    assert state.attempt == 101


def test_what_has_no_step_is_counted() -> None:
    state, done = taken(row(None, a=1, b=2), row(0), row(0, a=1))
    assert (state.stepless, done, state.rows) == (2, [], 3)


def test_a_framework_may_count_its_steps_in_a_key() -> None:
    axis = Axis(step_keys=("train/step",), ahead=("rollout/",))
    rows = [
        Row(step=17, values={"rollout/raw_reward": 0.5, "rollout/step": 3}),
        Row(step=18, values={"train/step": 6.0, "train/loss": 1.0}),
        Row(step=19, values={"train/step": 7.0, "train/loss": 2.0}),
        Row(step=20, values={"train/step": 7.5, "train/loss": 3.0}),
    ]
    state, done = taken(*rows, axis=axis)
    assert told(done) == [(100, 6, {"rollout/raw_reward": 0.5, "rollout/step": 3, "train/loss": 1.0})]
    assert state.stepless == 1


@pytest.mark.parametrize("cut", range(1, 9))
def test_where_rows_are_cut_is_of_no_consequence(cut: int) -> None:
    rows = [row(i // 2, i, **{"ab"[i % 2]: i}) for i in range(10)]
    whole, at_once = taken(*rows)
    half, first = taken(*rows[:cut])
    rest, second = taken(*rows[cut:], begin=half)
    assert (rest, first + second) == (whole, at_once)
