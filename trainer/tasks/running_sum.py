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

from trimtab.trainer.tasks.task import Graded

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

    def prompts(self, count: int, generator: torch.Generator) -> Tensor:
        """[count, prompt_length] fresh prompts."""
        digits = torch.randint(0, 10, (count, self.digits), generator=generator)
        return torch.cat([digits, torch.full((count, 1), EQUALS)], dim=1)

    def chain(self, prompts: Tensor) -> Tensor:
        """[B, digits] the right chain of thought of each prompt."""
        return prompts[:, : self.digits].cumsum(1) % 10

    def grade(self, prompts: Tensor, responses: Tensor) -> Graded:
        """Grade [B, response_length] responses, padded in any way after their end."""
        length = responses.shape[1]
        ended = responses == END
        has_end = ended.any(1)
        end = torch.where(has_end, ended.int().argmax(1), length)
        position = torch.arange(length)
        body = position < end[:, None]
        well_formed = has_end & (end > 0) & ((responses < 10) | ~body).all(1)
        answer = responses.gather(1, (end - 1).clamp_min(0)[:, None])[:, 0]
        right = well_formed & (answer == self.chain(prompts)[:, -1])
        return Graded(
            rewards=right.float(),
            mask=(position <= end[:, None]).float(),
            garbage=(~well_formed).float(),
            lengths=(end + 1).clamp_max(length).float(),
        )

    def corrupted_answers(self, prompts: Tensor, error_rate: float, generator: torch.Generator) -> Tensor:
        """[B, digits + 1] chains in which each step is, with probability `error_rate`, a random digit that the chain
        goes on from.

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
