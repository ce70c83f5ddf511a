"""Published weights are kept as long as something may be sampled with them, and no longer."""

from __future__ import annotations

import math

import pytest

from trimtab.trainer.rollouts.published import Published


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("age", [0, 1, 2, 5])
def test_every_version_that_a_step_may_ask_for_is_there(every: int, age: int) -> None:
    published, done = Published(every=every, age=age), []
    for step in range(20):
        if published.due(step):
            published.add(step, {})
            done.append(step)
        assert published.newest == step - step % every
        for wanted in range(step - age, step + 1):
            expected = max((version for version in done if version <= wanted), default=0)
            assert published.before(wanted) == expected
        assert len(published.versions) <= age // every + 2


def test_a_run_that_begins_between_two_publications_publishes_at_once() -> None:
    published = Published(every=4, age=0)
    assert published.due(5)
    published.add(5, {})
    assert [step for step in range(6, 13) if published.due(step)] == [8, 12]


def test_state_goes_back_to_what_it_was() -> None:
    published = Published(every=1, age=1)
    published.add(0, {})
    published.add(1, {})
    state = published.state()
    published.add(2, {})
    published.restore(state)
    assert published.versions == (0, 1)


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("lag", [0, 1, 4])
@pytest.mark.parametrize("most", [0, 1, 2.5, 6])
def test_no_version_is_older_than_allowed_and_the_lag_is_kept_where_it_may_be(
    every: int, lag: int, most: float
) -> None:
    bound, free = Published(every=every, age=lag), Published(every=every, age=lag)
    for step in range(20):
        for published, allowed in ((bound, most), (free, math.inf)):
            if published.due(step, allowed):
                published.add(step, {})
        version, unbound = bound.aged(step, lag, most), free.aged(step, lag, math.inf)
        assert step - version <= most
        assert unbound == free.before(step - lag)
        if every == 1:
            assert version == max(unbound, step - int(min(most, lag)))


def test_where_all_are_too_old_it_is_the_newest() -> None:
    published = Published(every=9, age=9)
    published.add(0, {})
    published.add(1, {})
    assert published.aged(5, 5, 2) == 1
