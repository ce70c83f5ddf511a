"""Batches of prompts."""

from __future__ import annotations

import torch

from trimtab.trainer.tasks.task import Prompts, ends, response_mask


def test_shorter_prompts_are_padded_on_the_left() -> None:
    prompts = Prompts.left_padded([[1, 2, 3], [4], [5, 6]], ["a", "b", "c"], pad=9)
    assert prompts.tokens.tolist() == [[1, 2, 3], [9, 9, 4], [9, 5, 6]]
    assert prompts.padding is not None
    assert prompts.padding.tolist() == [0, 2, 1]
    assert prompts.problems == ("a", "b", "c")


def test_prompts_of_one_length_have_no_padding() -> None:
    prompts = Prompts.left_padded([[1, 2], [9, 9]], [0, 1], pad=9)
    assert prompts.tokens.tolist() == [[1, 2], [9, 9]]
    assert prompts.padding is None
    assert prompts.repeated(2).padding is None
    assert prompts.rows(torch.tensor([1])).padding is None


def test_groups_are_rows_that_follow_each_other() -> None:
    prompts = Prompts.left_padded([[1, 2], [3]], ["a", "b"], pad=0).repeated(3)
    assert prompts.tokens.tolist() == [[1, 2]] * 3 + [[0, 3]] * 3
    assert prompts.padding is not None
    assert prompts.padding.tolist() == [0, 0, 0, 1, 1, 1]
    assert prompts.problems == ("a", "a", "a", "b", "b", "b")


def test_rows_are_taken_with_their_problems() -> None:
    prompts = Prompts.left_padded([[1, 2], [3], [4, 5]], ["a", "b", "c"], pad=0).rows(torch.tensor([2, 1, 2]))
    assert prompts.tokens.tolist() == [[4, 5], [0, 3], [4, 5]]
    assert prompts.padding is not None
    assert prompts.padding.tolist() == [0, 1, 0]
    assert prompts.problems == ("c", "b", "c")


def test_a_response_ends_with_its_first_end() -> None:
    responses = torch.tensor([[1, 7, 7, 0], [7, 1, 1, 1], [1, 2, 3, 4], [1, 2, 3, 7]])
    stops = ends(responses, 7)
    assert stops.tolist() == [1, 0, 4, 3]
    assert response_mask(responses, stops).tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
