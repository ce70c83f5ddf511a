"""Tasks in text: questions to tokens, tokens to text, and a verifier that reads the text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from trimtab.trainer.tasks.garbage import GarbageLimits, entropy_bursts, invalid_share, is_garbage, repetition
from trimtab.trainer.tasks.task import Graded, Prompts, ends, response_mask


class Tokenizer(Protocol):
    """What a task needs of a tokenizer: a Hugging Face one, or `CharacterTokenizer`. One with a chat template also has
    `apply_chat_template`."""

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a response."""
        ...

    @property
    def pad_token_id(self) -> int | None:
        """The token that fills up; the end if there is none."""
        ...

    @property
    def chat_template(self) -> Any:
        """None if prompts are plain text."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`."""
        ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = True) -> str:
        """Text of `token_ids`."""
        ...


class TextTask(ABC):
    """A task whose problems are asked and answered in text; a subclass draws the problems and scores the answers.

    A question is asked as one user message if the tokenizer has a chat template, and as plain text otherwise. A
    response is what comes before the first end token, or all of it if it was cut off; either way the verifier reads its
    text without special tokens.

    Args:
        tokenizer: of the model.
        response_length: most tokens that a response may have.
        instruction: what is said after each question, behind a line break: how to answer.
        limits: from where on a response is garbage.

    Raises:
        ValueError: a tokenizer without an end token, or a response length below one.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        response_length: int,
        instruction: str = "",
        limits: GarbageLimits | None = None,
    ) -> None:
        if response_length < 1:
            raise ValueError(f"response_length: {response_length} is below 1")
        if tokenizer.eos_token_id is None:
            raise ValueError("tokenizer: has no eos_token_id, so no response could end; set its eos_token")
        self.tokenizer = tokenizer
        self.response_length = response_length
        self.instruction = instruction
        self.limits = limits or GarbageLimits()
        self.end = tokenizer.eos_token_id
        self.pad = self.end if tokenizer.pad_token_id is None else tokenizer.pad_token_id

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> list[tuple[str, Any]]:
        """`count` questions, each with what `score` needs of its problem, drawn from `generator` and nothing else."""

    @abstractmethod
    def score(self, problem: Any, text: str) -> float:
        """The reward of answering `text`."""

    def prompts(self, count: int, generator: torch.Generator) -> Prompts:
        """`count` fresh prompts; see `Task.prompts`."""
        drawn = self.draw(count, generator)
        rows = [self.encoded(question) for question, _ in drawn]
        return Prompts.left_padded(rows, [problem for _, problem in drawn], self.pad)

    def encoded(self, question: str) -> list[int]:
        """The prompt that asks `question`."""
        text = f"{question}\n{self.instruction}" if self.instruction else question
        if not self.tokenizer.chat_template:
            return self.tokenizer.encode(text)
        message = [{"role": "user", "content": text}]
        chat = cast(Any, self.tokenizer).apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        return self.tokenizer.encode(chat, add_special_tokens=False)  # the template has written them

    def grade(self, prompts: Prompts, responses: Tensor, entropies: Tensor | None = None) -> Graded:
        """Grade [B, response_length] responses; see `Task.grade`. Garbage is what passes one of the `limits`."""
        stops = ends(responses, self.end)
        mask = response_mask(responses, stops)
        bodies = [row[:stop] for row, stop in zip(responses.tolist(), stops.tolist(), strict=True)]
        texts = [self.tokenizer.decode(body, skip_special_tokens=True) for body in bodies]
        bursts = None if entropies is None else entropy_bursts(entropies, mask)
        shares = [0.0] * len(texts) if bursts is None else bursts.tolist()
        judged = zip(bodies, texts, shares, strict=True)
        return Graded(
            rewards=torch.tensor([self.score(p, text) for p, text in zip(prompts.problems, texts, strict=True)]),
            mask=mask,
            garbage=torch.tensor([float(is_garbage(body, text, share, self.limits)) for body, text, share in judged]),
            lengths=(stops + 1).clamp_max(responses.shape[1]).float(),
            truncated=(stops == responses.shape[1]).float(),
            repetition=torch.tensor([repetition(body) for body in bodies]),
            invalid_text=torch.tensor([invalid_share(text) for text in texts]),
            entropy_bursts=bursts,
        )
