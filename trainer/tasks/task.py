"""What the trainer needs of a verifiable task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from trimtab.trainer import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """A batch of prompts, padded on the left."""

    tokens: Tensor
    """[B, P] token ids."""
    padding: Tensor | None
    """[B] tokens of padding at the left of each row; None if there are none in any."""
    problems: tuple[Any, ...]
    """What the task's verifier needs of each row."""

    @classmethod
    def left_padded(cls, rows: Sequence[Sequence[int]], problems: Sequence[Any], pad: int) -> Prompts:
        """Token ids of any lengths as one batch, with `pad` in front of the shorter ones."""
        longest = max(map(len, rows))
        padding = torch.tensor([longest - len(row) for row in rows])
        tokens = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows])
        return cls(tokens=tokens, padding=padding if bool(padding.any()) else None, problems=tuple(problems))

    def repeated(self, times: int) -> Prompts:
        """Each row `times` times in a row: the groups of GRPO."""
        padding = None if self.padding is None else self.padding.repeat_interleave(times)
        problems = tuple(problem for problem in self.problems for _ in range(times))
        return Prompts(tokens=self.tokens.repeat_interleave(times, 0), padding=padding, problems=problems)

    def to(self, device: torch.device | str) -> Prompts:
        """The same on `device`; the problems stay what they are."""
        return rows.moved(self, device)

    def rows(self, index: Tensor) -> Prompts:
        """The rows at `index`, a [n] tensor of row numbers."""
        padding = None if self.padding is None else self.padding[index]
        problems = tuple(self.problems[row] for row in index.tolist())
        return Prompts(tokens=self.tokens[index], padding=padding, problems=problems)

    @classmethod
    def concatenated(cls, batches: Sequence[Prompts], pad: int) -> Prompts:
        """All rows of `batches`, in order, padded to one length with `pad`."""
        longest = max(batch.tokens.shape[1] for batch in batches)
        tokens, padding = [], []
        for batch in batches:
            missing = longest - batch.tokens.shape[1]
            own = torch.zeros(len(batch.tokens), dtype=torch.long) if batch.padding is None else batch.padding
            tokens.append(functional.pad(batch.tokens, (missing, 0), value=pad))
            padding.append(own + missing)
        joined = torch.cat(padding)
        problems = tuple(problem for batch in batches for problem in batch.problems)
        return cls(tokens=torch.cat(tokens), padding=joined if bool(joined.any()) else None, problems=problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """Rewards of a batch of B responses of up to T tokens, and how sound they look."""

    rewards: Tensor
    """[B], 1.0 for right and 0.0 for wrong unless the task says otherwise."""
    mask: Tensor
    """[B, T] 1.0 on the response up to and including its end."""
    garbage: Tensor
    """[B] 1.0 where the response is garbage; each task says what that is."""
    lengths: Tensor
    """[B] tokens in the response, its end included."""
    truncated: Tensor
    """[B] 1.0 where the response has no end: it was cut off at the longest that it may be."""
    repetition: Tensor
    """[B] share of 4-grams of tokens that the response has had before."""
    invalid_text: Tensor
    """[B] share of the response that is no text: characters that do not decode or print, tokens outside the task's
    alphabet."""
    entropy_bursts: Tensor | None
    """[B] share of tokens of outlying entropy; None if `grade` was given no entropies."""

    def to(self, device: torch.device | str) -> Graded:
        """The same on `device`."""
        return rows.moved(self, device)

    def rows(self, index: Tensor) -> Graded:
        """The responses at `index`, a [n] tensor of row numbers."""
        return rows.chosen(self, index)

    @staticmethod
    def concatenated(batches: Sequence[Graded]) -> Graded:
        """All responses of `batches`, in order; all were given entropies, or none."""
        return rows.joined(batches)


class Task(Protocol):
    """What the trainer needs of a verifiable task."""

    @property
    def end(self) -> int:
        """The token that ends a response."""
        ...

    @property
    def pad(self) -> int:
        """The token that fills up after it, and before a prompt."""
        ...

    @property
    def response_length(self) -> int:
        """Most tokens that a response may have."""
        ...

    def prompts(self, count: int, generator: torch.Generator) -> Prompts:
        """`count` fresh prompts, drawn from `generator` and nothing else."""
        ...

    def grade(self, prompts: Prompts, responses: Tensor, entropies: Tensor | None = None) -> Graded:
        """Grade [B, response_length] responses, padded in any way after their end.

        Args:
            prompts: what they respond to, row by row.
            responses: token ids.
            entropies: [B, response_length] of the policy at each token, nats.
        """
        ...


def ends(responses: Tensor, end: int) -> Tensor:
    """[B] where the first `end` of each of the [B, T] responses is; T where there is none."""
    ended = responses == end
    return torch.where(ended.any(1), ended.int().argmax(1), responses.shape[1])


def response_mask(responses: Tensor, stops: Tensor) -> Tensor:
    """[B, T] 1.0 up to and including `stops`."""
    return (torch.arange(responses.shape[1], device=responses.device) <= stops[:, None]).float()
