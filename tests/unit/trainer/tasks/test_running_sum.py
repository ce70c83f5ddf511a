"""Grading and chains of the running sum, against plain Python."""

from __future__ import annotations

import pytest
import torch

from trimtab.trainer.tasks.running_sum import END, EQUALS, PAD, RunningSum
from trimtab.trainer.tasks.task import Prompts

TASK = RunningSum(digits=4)
MODULI = (10, 13, 60, 90)


@pytest.mark.parametrize(
    ("modulus", "vocabulary"), [(2, 16), (10, 16), (13, 16), (14, 32), (60, 64), (72, 80), (90, 96)]
)
def test_the_marks_follow_the_numbers_and_whole_sixteens_hold_them(modulus: int, vocabulary: int) -> None:
    task = RunningSum(modulus=modulus)
    assert (task.equals, task.end, task.pad) == (modulus, modulus + 1, modulus + 2)
    assert task.vocabulary == vocabulary
    assert (TASK.equals, TASK.end, TASK.pad) == (EQUALS, END, PAD)


@pytest.mark.parametrize("modulus", MODULI)
def test_prompts_are_numbers_and_an_equals_sign(modulus: int) -> None:
    task = RunningSum(digits=4, modulus=modulus)
    prompts = task.prompts(1000, torch.Generator().manual_seed(1)).tokens
    assert prompts.shape == (1000, 5)
    assert set(prompts[:, :4].flatten().tolist()) == set(range(modulus))
    assert set(prompts[:, 4].tolist()) == {task.equals}


def test_prompts_modulo_ten_are_those_of_every_earlier_run() -> None:
    drawn = torch.randint(0, 10, (7, 4), generator=torch.Generator().manual_seed(5))
    assert TASK.prompts(7, torch.Generator().manual_seed(5)).tokens[:, :4].equal(drawn)


@pytest.mark.parametrize("modulus", MODULI)
def test_chain_is_the_running_sum(modulus: int) -> None:
    task = RunningSum(digits=4, modulus=modulus)
    prompts = task.prompts(50, torch.Generator().manual_seed(2))
    chains = task.chain(prompts.tokens).tolist()
    for prompt, chain, problem in zip(prompts.tokens.tolist(), chains, prompts.problems, strict=True):
        total, expected = 0, []
        for number in prompt[:4]:
            total = (total + number) % modulus
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
    assert graded.truncated.tolist() == [float(END not in response)]
    assert graded.mask.tolist() == [[1.0] * length + [0.0] * (7 - length)]


@pytest.mark.parametrize(
    ("response", "reward", "garbage"),
    [
        ([50, 42, 43, 2, 91, 92, 92], 1.0, 0.0),
        ([89, 2, 91, 92, 92, 92, 92], 1.0, 0.0),  # only the answer counts
        ([50, 42, 43, 3, 91, 92, 92], 0.0, 0.0),
        ([50, 90, 43, 2, 91, 92, 92], 0.0, 1.0),  # the equals sign is no number
        ([50, 95, 43, 2, 91, 92, 92], 0.0, 1.0),  # a spare id
        ([50, 42, 43, 2, 11, 92, 92], 0.0, 1.0),  # eleven is a number here: no end
    ],
)
def test_grade_modulo_ninety(response: list[int], reward: float, garbage: float) -> None:
    prompts = Prompts(tokens=torch.tensor([[50, 82, 1, 49, 90]]), padding=None, problems=(2,))
    graded = RunningSum(digits=4, modulus=90).grade(prompts, torch.tensor([response]))
    assert (graded.rewards.tolist(), graded.garbage.tolist()) == ([reward], [garbage])


@pytest.mark.parametrize("modulus", MODULI)
def test_answers_without_errors_earn_every_reward(modulus: int) -> None:
    generator = torch.Generator().manual_seed(3)
    task = RunningSum(digits=4, modulus=modulus)
    prompts = task.prompts(64, generator)
    answers = task.corrupted_answers(prompts.tokens, 0.0, generator)
    assert answers[:, :4].equal(task.chain(prompts.tokens))
    assert task.grade(prompts, answers).rewards.sum() == 64


@pytest.mark.parametrize("modulus", MODULI)
def test_a_corrupted_chain_goes_on_from_its_own_slip(modulus: int) -> None:
    generator = torch.Generator().manual_seed(4)
    task = RunningSum(digits=4, modulus=modulus)
    prompts = task.prompts(4000, generator).tokens
    answers = task.corrupted_answers(prompts, 0.3, generator)
    previous = torch.cat([torch.zeros(4000, 1, dtype=torch.long), answers[:, :3]], 1)
    consistent = answers[:, :4] == (previous + prompts[:, :4]) % modulus
    # A slip is a uniform number, which is now and then the right one.
    assert consistent.float().mean().item() == pytest.approx(1 - 0.3 * (1 - 1 / modulus), abs=0.012)


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
