"""Advantages, penalties and the choice of groups against plain arithmetic on each group."""

from __future__ import annotations

import statistics

import pytest
import torch

from trimtab.trainer.advantages import (
    ADVANTAGE_FLOOR,
    group_advantages,
    overlong_penalties,
    uninformative_groups,
)


@pytest.mark.parametrize("seed", range(3))
def test_advantages_compare_a_reward_with_its_own_group(seed: int) -> None:
    rewards = torch.rand(12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    by_std, by_mean = group_advantages(rewards, 4), group_advantages(rewards, 4, "group_mean")
    for row in range(12):
        group = rewards[row // 4 * 4 : row // 4 * 4 + 4].tolist()
        centred = float(rewards[row]) - statistics.mean(group)
        assert by_mean[row].item() == pytest.approx(centred, abs=1e-12)
        assert by_std[row].item() == pytest.approx(centred / (statistics.stdev(group) + ADVANTAGE_FLOOR), abs=1e-12)


def test_a_group_of_equal_rewards_has_no_advantage_and_is_uninformative() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0])
    assert uninformative_groups(rewards, 3).tolist() == [False, True, True]
    assert group_advantages(rewards, 3)[3:].abs().max() < 1e-3
    assert torch.equal(group_advantages(rewards, 3)[6:], torch.zeros(3))


def test_groups_that_compare_nothing_or_do_not_fill_the_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="group_size: 1 leaves nothing to compare"):
        group_advantages(torch.zeros(4), 1)
    for refuses in (group_advantages, uninformative_groups):
        with pytest.raises(ValueError, match="group_size: 3 does not divide 4 rewards"):
            refuses(torch.zeros(4), 3)


def test_the_overlong_penalty_grows_over_the_buffer() -> None:
    lengths = torch.tensor([0, 11, 12, 13, 15, 16])
    penalties = overlong_penalties(lengths, response_length=16, buffer=4, penalty=2.0)
    expected = [min(-(length - (16 - 4)) / 4 * 2.0, 0.0) for length in lengths.tolist()]
    torch.testing.assert_close(penalties, torch.tensor(expected))
    assert penalties[-1] == -2.0


@pytest.mark.parametrize("buffer", [0, 17])
def test_a_buffer_outside_the_response_is_refused(buffer: int) -> None:
    with pytest.raises(ValueError, match=rf"buffer: {buffer} tokens is not in 1\.\.16"):
        overlong_penalties(torch.zeros(1), response_length=16, buffer=buffer, penalty=1.0)
