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
    for whole in (True, False):
        after, last = state.ended(whole=whole)
        assert told(last) == [(100, 1, {"a": 1})]
        assert last[0].whole is whole
        assert after.ended(whole=True) == (after, [])


def test_rows_that_come_twice_count_once() -> None:
    state, done = taken(row(0, a=1), row(0, a=1), row(1, a=1), row(1, a=1), row(2, a=3))
    assert told(done) == [(100, 0, {"a": 1}), (100, 1, {"a": 1})]
    assert state.again == 2
    state, done = state.ended(whole=True)
    again, more = taken(row(2, a=3), begin=state)
    assert more == []
    assert (again.again, again.late) == (3, 0)


def test_the_same_key_for_an_earlier_step_is_a_resume() -> None:
    state, done = taken(*(row(step, a=step) for step in range(5)), *(row(step, a=-step) for step in (3, 4, 5)))
    first = [(100, step, {"a": step}) for step in range(5)]
    assert told(done) == [*first, (101, 3, {"a": -3}), (101, 4, {"a": -4})]
    assert state.attempt == 101


def test_another_key_for_an_earlier_step_is_late_and_told_with_the_next() -> None:
    state, done = taken(row(0, a=0), row(1, a=1), row(2, a=2), row(1, b=9), row(3, a=3))
    assert told(done) == [(100, 0, {"a": 0}), (100, 1, {"a": 1}), (100, 2, {"a": 2, "b": 9})]
    assert (state.late, state.attempt) == (1, 100)
    state, done = state.ended(whole=True)
    state, done = taken(row(3, c=7, a=8), row(4, a=4), row(5, a=5), begin=state)
    assert told(done) == [(100, 4, {"a": 4, "c": 7})]
    assert (state.late, state.again) == (2, 1)


def test_two_writers_of_one_log_lose_nothing() -> None:
    """An orchestrator that is a step ahead of the trainer, as prime-rl's: the trainer's come a step later."""
    rows = [row(0, reward=0), *(one for i in range(1, 5) for one in (row(i, reward=i), row(i - 1, loss=10 * i)))]
    _, done = taken(*rows, row(5, reward=5))
    assert told(done) == [(100, 0, {"reward": 0})] + [(100, i, {"reward": i, "loss": 10 * i}) for i in range(1, 5)]


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
