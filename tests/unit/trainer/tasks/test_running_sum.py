"""Grading and chains of the running sum, against plain Python."""

from __future__ import annotations

import pytest
import torch

from trimtab.trainer.tasks.running_sum import END, EQUALS, PAD, RunningSum
from trimtab.trainer.tasks.task import Prompts

TASK = RunningSum(digits=4)


def test_prompts_are_digits_and_an_equals_sign() -> None:
    prompts = TASK.prompts(500, torch.Generator().manual_seed(1)).tokens
    assert prompts.shape == (500, 5)
    assert set(prompts[:, :4].flatten().tolist()) == set(range(10))
    assert set(prompts[:, 4].tolist()) == {EQUALS}


def test_chain_is_the_running_sum() -> None:
    prompts = TASK.prompts(50, torch.Generator().manual_seed(2))
    chains = TASK.chain(prompts.tokens).tolist()
    for prompt, chain, problem in zip(prompts.tokens.tolist(), chains, prompts.problems, strict=True):
        total, expected = 0, []
        for digit in prompt[:4]:
            total = (total + digit) % 10
            expected.append(total)
        assert chain == expected
        assert problem == expected[-1]


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
    prompts = Prompts(tokens=torch.tensor([[7, 5, 1, 6, EQUALS]]), padding=None, problems=(9,))
    graded = TASK.grade(prompts, torch.tensor([response]))
    assert graded.rewards.tolist() == [reward]
    assert graded.garbage.tolist() == [garbage]
    assert graded.lengths.tolist() == [length]
    assert graded.mask.tolist() == [[1.0] * length + [0.0] * (7 - length)]


def test_answers_without_errors_earn_every_reward() -> None:
    generator = torch.Generator().manual_seed(3)
    prompts = TASK.prompts(64, generator)
    answers = TASK.corrupted_answers(prompts.tokens, 0.0, generator)
    assert answers[:, :4].equal(TASK.chain(prompts.tokens))
    assert TASK.grade(prompts, answers).rewards.sum() == 64


def test_a_corrupted_chain_goes_on_from_its_own_slip() -> None:
    generator = torch.Generator().manual_seed(4)
    prompts = TASK.prompts(4000, generator).tokens
    answers = TASK.corrupted_answers(prompts, 0.3, generator)
    previous = torch.cat([torch.zeros(4000, 1, dtype=torch.long), answers[:, :3]], 1)
    consistent = answers[:, :4] == (previous + prompts[:, :4]) % 10
    # A slip is a uniform digit, which is the right one in one case of ten: 1 - 0.3 * 0.9.
    assert consistent.float().mean().item() == pytest.approx(0.73, abs=0.01)


def test_soundness_of_a_response_is_measured_up_to_its_end() -> None:
    prompts = Prompts(tokens=torch.tensor([[7, 5, 1, 6, EQUALS]] * 3), padding=None, problems=(9,) * 3)
    responses = torch.tensor([[1, 1, 1, 1, 1, 1, END], [7, 15, EQUALS, 9, END, 15, 15], [END, 15, 15, 15, 15, 15, 15]])
    graded = TASK.grade(prompts, responses)
    assert graded.repetition.tolist() == pytest.approx([2 / 3, 0.0, 0.0])  # three 4-grams, one of them new
    assert graded.invalid_text.tolist() == [0.0, 0.5, 0.0]
    assert graded.entropy_bursts is None
    entropies = torch.zeros(3, 7)
    entropies[1, 2] = 1.0  # one of 13 live tokens: above 1/13 + 3 * sqrt(12)/13
    entropies[1, 5] = 9.0  # behind the end
    bursts = TASK.grade(prompts, responses, entropies).entropy_bursts
    assert bursts is not None
    assert bursts.tolist() == pytest.approx([0.0, 0.2, 0.0])
