"""A verifiable task that a 100k-parameter model can learn: add digits, out loud.

The prompt is `digits` digits and `=`; the chain of thought is the running sum modulo 10 after each digit; the reward is
1 when the answer has only digits, ends with end-of-sequence, and its last digit is the total, whatever the chain says.
So only the outcome is rewarded, one wrong step spoils what follows, and a group of samples disagrees: the shape of GRPO
on maths, at a size that a CPU trains in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.trainer.tasks.garbage import entropy_bursts, repetition
from trimtab.trainer.tasks.task import Graded, Prompts, ends, response_mask

EQUALS, END, PAD = 10, 11, 12
VOCABULARY = 16
"""Ten digits, three marks, and spare ids that only a broken policy emits."""
SPARE_TOKENS = 2
"""Tokens that a response may run past the right length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSum:
    """Running sum modulo 10 of `digits` digits.

    >>> RunningSum(digits=3).chain(torch.tensor([[7, 5, 1, EQUALS]])).tolist()
    [[7, 2, 3]]
    """

    digits: int = 8
    end: int = END
    pad: int = PAD

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
        """`count` fresh prompts, all of one length; a problem is the total modulo 10."""
        digits = torch.randint(0, 10, (count, self.digits), generator=generator)
        tokens = torch.cat([digits, torch.full((count, 1), EQUALS)], dim=1)
        return Prompts(tokens=tokens, padding=None, problems=tuple((digits.sum(1) % 10).tolist()))

    def chain(self, prompts: Tensor) -> Tensor:
        """[B, digits] the right chain of thought of each of the [B, prompt_length] prompts."""
        return prompts[:, : self.digits].cumsum(1) % 10

    def grade(self, prompts: Prompts, responses: Tensor, entropies: Tensor | None = None) -> Graded:
        """Grade [B, response_length] responses; see `Task.grade`.

        Garbage is a response without an end, with nothing before it, or with something other than digits. As text,
        whatever is no digit is invalid.
        """
        end = ends(responses, self.end)
        body = torch.arange(responses.shape[1]) < end[:, None]
        strange = (responses >= 10) & body
        well_formed = (end < responses.shape[1]) & (end > 0) & ~strange.any(1)
        answer = responses.gather(1, (end - 1).clamp_min(0)[:, None])[:, 0]
        mask = response_mask(responses, end)
        said = zip(responses.tolist(), end.tolist(), strict=True)
        return Graded(
            rewards=(well_formed & (answer == torch.tensor(prompts.problems))).float(),
            mask=mask,
            garbage=(~well_formed).float(),
            lengths=(end + 1).clamp_max(responses.shape[1]).float(),
            repetition=torch.tensor([repetition(row[:stop]) for row, stop in said]),
            invalid_text=strange.sum(1) / end.clamp_min(1),
            entropy_bursts=None if entropies is None else entropy_bursts(entropies, mask),
        )

    def corrupted_answers(self, prompts: Tensor, error_rate: float, generator: torch.Generator) -> Tensor:
        """[B, digits + 1] chains for [B, prompt_length] prompts in which each step is, with probability `error_rate`, a
        random digit that the chain goes on from.

        They are what the warm start imitates: a policy that knows the method and is often wrong, so that GRPO has work
        to do.
        """
        running = torch.zeros(prompts.shape[0], dtype=torch.long)
        steps = []
        for index in range(self.digits):
            running = (running + prompts[:, index]) % 10
            slipped = torch.rand(prompts.shape[0], generator=generator) < error_rate
            running = torch.where(slipped, torch.randint(0, 10, running.shape, generator=generator), running)
            steps.append(running)
        return torch.cat([torch.stack(steps, 1), torch.full((prompts.shape[0], 1), END)], dim=1)
