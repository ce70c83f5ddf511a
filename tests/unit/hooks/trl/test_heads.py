"""The sampler's head from vLLM's answers, as TRL's client gives them: a stand-in of them, written from its source."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl_runs as runs

from trimtab.hooks.trl import attach
from trimtab.hooks.trl.heads import VLLMHead, padded_head


def answer() -> tuple[Any, Any, Any, Any]:
    """Two responses of two tokens and of one, with the likeliest two of each and the sampled one where it is none."""
    completions = [[5, 9], [7]]
    ids = [[[5, 2], [1, 2, 9]], [[3, 7]]]
    logprobs = [[[-0.1, -2.4], [-0.5, -1.0, -4.0]], [[-0.2, None]]]
    return [[1], [2]], completions, logprobs, ids


def test_trl_gets_the_sampled_token_and_not_the_likeliest() -> None:
    prompts, completions, logprobs, ids = VLLMHead(2).taken_apart(*answer())
    assert (prompts, completions) == ([[1], [2]], [[5, 9], [7]])
    assert logprobs == [[[-0.1], [-4.0]], [[None]]]  # None as vLLM gives it, where it knows none
    assert ids == [[[5], [9]], [[7]]]


def test_the_head_is_the_likeliest_of_each_position_and_nothing_in_the_padding() -> None:
    head = VLLMHead(2)
    head.taken_apart(*answer())
    taken = head.taken(3)
    assert taken is not None
    ids, logprobs = taken
    assert ids.shape == logprobs.shape == (2, 3, 2)
    assert ids[0, 1].tolist() == [1, 2]
    assert logprobs[0, 1].tolist() == [-0.5, -1.0]
    assert logprobs[1, 0].tolist() == [pytest.approx(-0.2), -math.inf]
    assert torch.isneginf(logprobs[0, 2]).all()
    assert torch.isneginf(logprobs[1, 1:]).all()
    assert head.taken(3) is None  # once


@pytest.mark.parametrize(
    ("ids", "logprobs"), [([[[1]] * 4], [[[-1.0]] * 4]), ([[[1], [2]]], [[[-1.0]]])], ids=["too long", "ragged"]
)
def test_a_head_that_is_not_the_responses_is_an_error(ids: Any, logprobs: Any) -> None:
    with pytest.raises(ValueError, match="give one row a token"):
        padded_head(ids, logprobs, length=3, size=1)


@pytest.mark.filterwarnings("ignore")  # of TRL
def test_vllm_is_asked_for_the_head_and_what_trl_cannot_use_is_kept_from_it(tmp_path: Path) -> None:
    trainer = runs.grpo(tmp_path)
    trainer.use_vllm = True
    trainer.vllm_generation = SimpleNamespace(logprobs=0, generate=lambda **_: answer())
    attachment = attach(trainer, "memory:", job="run", head=8)
    assert attachment.emitter.capabilities.sampler_head == 8
    assert trainer.vllm_generation.logprobs == 8
    assert trainer.vllm_generation.generate(prompts=[])[2] == [[[-0.1], [-4.0]], [[None]]]
    attachment.detach()
    assert trainer.vllm_generation.logprobs == 0
    assert trainer.vllm_generation.generate(prompts=[]) == answer()
