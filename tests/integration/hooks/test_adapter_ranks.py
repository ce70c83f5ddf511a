"""Adapters whose ranks report as one, over real processes of a gloo group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from adapter_ranks import meet, ride_and_break, ride_and_note, ride_with_order
from rank_processes import RankProcesses

RANKS = ["areal", "openrlhf", "slime", "prime_rl"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankProcesses]:
    with RankProcesses(2, tmp_path_factory.mktemp("ranks")) as processes:
        yield processes


def test_ranks_meet_and_where_one_does_not_come_none_joins(ranks: RankProcesses) -> None:
    assert ranks.run(meet, 2, 20.0, "both") == ["met", "met"]
    assert set(ranks.run(meet, 3, 0.2, "one is missing")) == {
        "2 of 3 ranks came within 0.2 s; trimtab and its environment variables must be on all"
    }


def test_a_second_meeting_is_not_the_first_ones(ranks: RankProcesses) -> None:
    assert ranks.run(meet, 2, 20.0, "again") == ["met", "met"]
    assert set(ranks.run(meet, 3, 0.2, "again")) == {
        "2 of 3 ranks came within 0.2 s; trimtab and its environment variables must be on all"
    }


@pytest.mark.parametrize("name", RANKS)
def test_all_ranks_report_as_one_and_turn_the_knob_at_the_same_step(ranks: RankProcesses, name: str) -> None:
    first, second = ranks.run(ride_with_order, name)
    assert first.highs == second.highs
    assert len(set(first.highs)) == 2
    assert first.highs[-1] == 0.03125
    assert {summary.ranks for summary in first.sent} == {2}
    assert (first.failures, second.failures) == (0, 0)
    assert second.sent == []


@pytest.mark.parametrize("name", RANKS)
def test_an_adapter_that_fails_on_one_rank_comes_off_all_of_them_at_the_same_step(
    ranks: RankProcesses, name: str
) -> None:
    first, second = ranks.run(ride_and_break, name)
    assert first.highs == second.highs
    assert 0.03125 in first.highs
    assert first.highs[-1] == first.highs[0]
    assert (first.attached, second.attached) == (False, False)


@pytest.mark.parametrize("name", RANKS)
def test_a_rank_that_notes_a_sigterm_and_goes_on_stays_in_the_sums(ranks: RankProcesses, name: str) -> None:
    first, second = ranks.run(ride_and_note, name)
    assert first.highs == second.highs
    assert first.highs[-1] == 0.03125
    steps = [summary.step for summary in first.sent]
    assert steps == [*range(steps[0], steps[0] + len(steps))]
    assert len(steps) >= 5
    assert (first.attached, second.attached) == (True, True)
    assert (first.failures, second.failures) == (0, 0)
