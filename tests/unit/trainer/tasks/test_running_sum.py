"""Grading and chains of the running sum, against plain Python."""

from __future__ import annotations

import pytest
import torch

from trimtab.trainer.tasks.running_sum import END, EQUALS, PAD, RunningSum

TASK = RunningSum(digits=4)


def test_prompts_are_digits_and_an_equals_sign() -> None:
    prompts = TASK.prompts(500, torch.Generator().manual_seed(1))
    assert prompts.shape == (500, 5)
    assert set(prompts[:, :4].flatten().tolist()) == set(range(10))
    assert set(prompts[:, 4].tolist()) == {EQUALS}


def test_chain_is_the_running_sum() -> None:
    prompts = TASK.prompts(50, torch.Generator().manual_seed(2))
    for prompt, chain in zip(prompts.tolist(), TASK.chain(prompts).tolist(), strict=True):
        total, expected = 0, []
        for digit in prompt[:4]:
            total = (total + digit) % 10
            expected.append(total)
        assert chain == expected


@pytest.mark.parametrize(
    ("response", "reward", "garbage", "length"),
    [
        ([7, 2, 3, 9, END, PAD, PAD], 1.0, 0.0, 5),
        ([9, END, PAD, PAD, PAD, PAD, PAD], 1.0, 0.0, 2),  # only the answer counts
        ([7, 2, 3, 8, END, PAD, PAD], 0.0, 0.0, 5),  # wrong answer
        ([7, 2, 3, 9, 9, 9, 9], 0.0, 1.0, 7),  # no end
        ([END, 7, 2, 3, 9, PAD, PAD], 0.0, 1.0, 1),  # nothing before the end
        ([7, EQUALS, 3, 9, END, PAD, PAD], 0.0, 1.0, 5),  # not a digit
        ([9, END, 15, 15, 15, 15, 15], 1.0, 0.0, 2),  # what follows the end is padding, whatever it is
    ],
)
def test_grade(response: list[int], reward: float, garbage: float, length: int) -> None:
    prompts = torch.tensor([[7, 5, 1, 6, EQUALS]])
    graded = TASK.grade(prompts, torch.tensor([response]))
    assert graded.rewards.tolist() == [reward]
    assert graded.garbage.tolist() == [garbage]
    assert graded.lengths.tolist() == [length]
    assert graded.mask.tolist() == [[1.0] * length + [0.0] * (7 - length)]


def test_answers_without_errors_earn_every_reward() -> None:
    generator = torch.Generator().manual_seed(3)
    prompts = TASK.prompts(64, generator)
    answers = TASK.corrupted_answers(prompts, 0.0, generator)
    assert answers[:, :4].equal(TASK.chain(prompts))
    assert TASK.grade(prompts, answers).rewards.sum() == 64


def test_a_corrupted_chain_goes_on_from_its_own_slip() -> None:
    generator = torch.Generator().manual_seed(4)
    prompts = TASK.prompts(4000, generator)
    answers = TASK.corrupted_answers(prompts, 0.3, generator)
    previous = torch.cat([torch.zeros(4000, 1, dtype=torch.long), answers[:, :3]], 1)
    consistent = answers[:, :4] == (previous + prompts[:, :4]) % 10
    # A slip is a uniform digit, which is the right one in one case of ten: 1 - 0.3 * 0.9.
    assert consistent.float().mean().item() == pytest.approx(0.73, abs=0.01)
