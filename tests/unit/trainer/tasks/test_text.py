"""Tasks in text: how a question is asked, and how what comes back is read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trimtab.trainer.tasks.characters import CharacterTokenizer
from trimtab.trainer.tasks.text import TextTask

TOKENIZER = CharacterTokenizer()
END, PAD = TOKENIZER.eos_token_id, TOKENIZER.pad_token_id


class Echo(TextTask):
    """Asks for a number and wants to hear it."""

    def draw(self, count: int, generator: torch.Generator) -> list[tuple[str, int]]:
        numbers = torch.randint(0, 1000, (count,), generator=generator).tolist()
        return [(f"say {number}", number) for number in numbers]

    def score(self, problem: Any, text: str) -> float:
        return float(text == str(problem))


class ChatTokenizer(CharacterTokenizer):
    """Has a template, whose special tokens must not be added twice, and no padding of its own."""

    __slots__ = ()
    pad_token_id = None  # type: ignore[assignment]
    chat_template = "<user>{}</user>"  # type: ignore[assignment]

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, add_generation_prompt: bool, tokenize: bool
    ) -> str:
        assert add_generation_prompt
        assert not tokenize
        assert [message["role"] for message in messages] == ["user"]
        return self.chat_template.format(messages[0]["content"])

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [1] * add_special_tokens + super().encode(text)


def test_prompts_are_questions_padded_on_the_left() -> None:
    task = Echo(TOKENIZER, response_length=4)
    prompts = task.prompts(64, torch.Generator().manual_seed(1))
    assert prompts.padding is not None
    for row, skip, problem in zip(prompts.tokens.tolist(), prompts.padding.tolist(), prompts.problems, strict=True):
        assert row == [PAD] * skip + list(f"say {problem}".encode())


def test_the_generator_alone_decides_the_prompts() -> None:
    task = Echo(TOKENIZER, response_length=4)
    first, second, other = (task.prompts(8, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert first.tokens.equal(second.tokens)
    assert first.problems == second.problems != other.problems


def test_the_instruction_follows_the_question() -> None:
    task = Echo(TOKENIZER, response_length=4, instruction="Be brief.")
    assert bytes(task.encoded("why?")).decode() == "why?\nBe brief."


def test_a_chat_template_asks_as_the_user_and_adds_no_tokens_of_its_own() -> None:
    task = Echo(ChatTokenizer(), response_length=4)
    assert bytes(task.encoded("why?")).decode() == "<user>why?</user>"
    assert task.pad == task.end == END


def test_a_response_is_read_up_to_its_end() -> None:
    task = Echo(TOKENIZER, response_length=5)
    prompts = task.prompts(3, torch.Generator().manual_seed(1))
    said = [str(problem) for problem in prompts.problems]
    responses = torch.tensor(
        [
            _padded([*said[0].encode(), END], 5),  # right
            _padded([*said[1].encode(), 33, END], 5),  # says more
            (list(said[2].encode()) * 5)[:5],  # never ends
        ]
    )
    graded = task.grade(prompts, responses)
    assert graded.rewards.tolist() == [1.0, 0.0, 0.0]
    assert graded.lengths.tolist() == [len(said[0]) + 1, len(said[1]) + 2, 5]
    assert graded.truncated.tolist() == [0.0, 0.0, 1.0]
    assert graded.mask.sum(1).tolist() == graded.lengths.tolist()
    assert graded.garbage.tolist() == [0.0] * 3
    assert graded.entropy_bursts is None


def test_broken_text_repetition_and_bursts_are_garbage() -> None:
    task = Echo(TOKENIZER, response_length=40)
    prompts = task.prompts(16, torch.Generator().manual_seed(1))
    responses = torch.arange(65, 105).repeat(16, 1)
    responses[0] = 0xFF
    responses[1] = torch.tensor([97, 98]).repeat(20)
    entropies = torch.full((16, 40), 0.2)
    entropies[2, 10:20] = 6.0
    graded = task.grade(prompts, responses, entropies)
    assert graded.garbage.tolist() == [1.0] * 3 + [0.0] * 13
    assert graded.invalid_text.tolist() == [1.0] + [0.0] * 15
    assert graded.repetition[1].item() == pytest.approx(1 - 2 / 37)
    assert graded.entropy_bursts is not None
    assert graded.entropy_bursts.tolist() == [0.0, 0.0, 0.25] + [0.0] * 13
    assert task.grade(prompts, responses).garbage.tolist() == [1.0] * 2 + [0.0] * 14


def test_what_no_response_could_satisfy_is_refused() -> None:
    with pytest.raises(ValueError, match="response_length: 0 is below 1"):
        Echo(TOKENIZER, response_length=0)

    class Endless(CharacterTokenizer):
        __slots__ = ()
        eos_token_id = None  # type: ignore[assignment]

    with pytest.raises(ValueError, match="tokenizer: has no eos_token_id"):
        Echo(Endless(), response_length=4)


def _padded(tokens: list[int], length: int) -> list[int]:
    return tokens + [PAD] * (length - len(tokens))
