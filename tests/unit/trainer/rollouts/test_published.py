"""Published weights are kept as long as something may be sampled with them, and no longer."""

from __future__ import annotations

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
