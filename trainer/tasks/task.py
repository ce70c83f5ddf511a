"""What the trainer needs of a verifiable task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """Rewards of a batch of responses."""

    rewards: Tensor
    """[B] 1.0 or 0.0."""
    mask: Tensor
    """[B, T] 1.0 on the response up to and including its end."""
    garbage: Tensor
    """[B] 1.0 where the response is malformed: no end, nothing before it, or something other than digits."""
    lengths: Tensor
    """[B] tokens in the response, its end included."""


class Task(Protocol):
    """What the trainer needs of a verifiable task."""

    @property
    def end(self) -> int:
        """The token that ends a response."""
        ...

    @property
    def pad(self) -> int:
        """The token that fills up after it."""
        ...

    @property
    def response_length(self) -> int:
        """Most tokens that a response may have."""
        ...

    def prompts(self, count: int, generator: torch.Generator) -> Tensor:
        """[count, P] fresh prompts, all of one length."""
        ...

    def grade(self, prompts: Tensor, responses: Tensor) -> Graded:
        """Grade [B, response_length] responses."""
        ...
