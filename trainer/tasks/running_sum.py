"""A verifiable task that a 100k-parameter model can learn: add numbers, out loud.

The prompt is `digits` numbers and `=`; the chain of thought is the running sum, modulo `modulus`, after each number;
the reward is 1 when the answer has only numbers, ends with end-of-sequence, and its last number is the total, whatever
the chain says. So only the outcome is rewarded, one wrong step spoils what follows, and a group of samples disagrees:
the shape of GRPO on maths, at a size that a CPU trains in seconds.

Each number below the modulus is one token. The larger the modulus, the finer the differences between neighbouring
numbers that the model has to resolve, and the larger the mismatch of a sampler of low precision: several times at 60
and at 90 what it is at 10.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.trainer.tasks.garbage import entropy_bursts, repetition
from trimtab.trainer.tasks.task import Graded, Prompts, ends, response_mask

EQUALS, END, PAD = 10, 11, 12
"""Of sums modulo 10; those of another modulus are behind its own numbers."""
MARKS = 3
MULTIPLE = 16
"""The vocabulary is of whole 16s, which every number format takes."""
SPARE_TOKENS = 2
"""Tokens that a response may run past the right length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSum:
    """Running sum of `digits` numbers, modulo `modulus`.

    >>> RunningSum(digits=3).chain(torch.tensor([[7, 5, 1, EQUALS]])).tolist()
    [[7, 2, 3]]
    >>> RunningSum(digits=3, modulus=60).vocabulary
    64
    """

    digits: int = 8
    modulus: int = 10

    @property
    def equals(self) -> int:
        """The token at the end of a prompt."""
        return self.modulus

    @property
    def end(self) -> int:
        """The token that ends a response."""
        return self.modulus + 1

    @property
    def pad(self) -> int:
        """The token that fills up after it."""
        return self.modulus + 2

    @property
    def vocabulary(self) -> int:
        """Numbers, three marks, and spare ids that only a broken policy emits."""
        return -(-(self.modulus + MARKS) // MULTIPLE) * MULTIPLE

    @property
    def prompt_length(self) -> int:
        """Tokens in a prompt."""
        return self.digits + 1

    @property
    def response_length(self) -> int:
        """Most tokens that a response may have."""
        return self.digits + 1 + SPARE_TOKENS

    @property
    def sequence_length(self) -> int:
        """Most tokens in prompt and response together."""
        return self.prompt_length + self.response_length

    def prompts(self, count: int, generator: torch.Generator) -> Prompts:
        """`count` fresh prompts, all of one length; a problem is the total."""
        numbers = torch.randint(0, self.modulus, (count, self.digits), generator=generator)
        tokens = torch.cat([numbers, torch.full((count, 1), self.equals)], dim=1)
        return Prompts(tokens=tokens, padding=None, problems=tuple((numbers.sum(1) % self.modulus).tolist()))

    def chain(self, prompts: Tensor) -> Tensor:
        """[B, digits] the right chain of thought of each of the [B, prompt_length] prompts."""
        return prompts[:, : self.digits].cumsum(1) % self.modulus

    def grade(self, prompts: Prompts, responses: Tensor, entropies: Tensor | None = None) -> Graded:
        """Grade [B, response_length] responses; see `Task.grade`.

        Garbage is a response without an end, with nothing before it, or with something other than numbers. As text,
        whatever is no number is invalid.
        """
        end = ends(responses, self.end)
        body = torch.arange(responses.shape[1]) < end[:, None]
        strange = (responses >= self.modulus) & body
        well_formed = (end < responses.shape[1]) & (end > 0) & ~strange.any(1)
        answer = responses.gather(1, (end - 1).clamp_min(0)[:, None])[:, 0]
        mask = response_mask(responses, end)
        said = zip(responses.tolist(), end.tolist(), strict=True)
        return Graded(
            rewards=(well_formed & (answer == torch.tensor(prompts.problems))).float(),
            mask=mask,
            garbage=(~well_formed).float(),
            lengths=(end + 1).clamp_max(responses.shape[1]).float(),
            truncated=(end == responses.shape[1]).float(),
            repetition=torch.tensor([repetition(row[:stop]) for row, stop in said]),
            invalid_text=strange.sum(1) / end.clamp_min(1),
            entropy_bursts=None if entropies is None else entropy_bursts(entropies, mask),
        )

    def corrupted_answers(self, prompts: Tensor, error_rate: float, generator: torch.Generator) -> Tensor:
        """[B, digits + 1] chains for [B, prompt_length] prompts in which each step is, with probability `error_rate`, a
        random number that the chain goes on from.

        They are what the warm start imitates: a policy that knows the method and is often wrong, so that GRPO has work
        to do.
        """
        running = torch.zeros(prompts.shape[0], dtype=torch.long)
        steps = []
        for index in range(self.digits):
            running = (running + prompts[:, index]) % self.modulus
            slipped = torch.rand(prompts.shape[0], generator=generator) < error_rate
            slip = torch.randint(0, self.modulus, running.shape, generator=generator)
            running = torch.where(slipped, slip, running)
            steps.append(running)
        return torch.cat([torch.stack(steps, 1), torch.full((prompts.shape[0], 1), self.end)], dim=1)
