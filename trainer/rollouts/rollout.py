"""Sampled responses, and what the engine that sampled them recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trimtab.trainer import rows
from trimtab.trainer.tasks.task import Prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Sampled responses; B sequences, T response tokens, k head entries."""

    prompts: Prompts
    """[B, prompt_length] tokens, padded on the left."""
    responses: Tensor
    """[B, T] tokens; padding after the end."""
    logprobs: Tensor
    """[B, T] log-prob of each token under the sampler."""
    entropy: Tensor | None
    """[B, T] entropy of the distribution that each token was sampled from, nats; None where the engine does not tell,
    as serving engines do not."""
    head_ids: Tensor
    """[B, T, k] ids of the sampler's most probable tokens."""
    head_logprobs: Tensor
    """[B, T, k] their log-probs."""
    versions: Tensor
    """[B, T] version of the weights that each token was sampled with; several where weights arrived in flight."""
    engine: str
    """What the sampler's quantised layers computed with when it began, such as `nvfp4-emulated`."""

    @property
    def inputs(self) -> Tensor:
        """[B, prompt_length + T - 1] tokens that a model reads to give the distribution of every response token."""
        return torch.cat([self.prompts.tokens, self.responses[:, :-1]], 1)

    def rows(self, index: Tensor) -> Rollout:
        """The sequences at `index`, a [n] tensor of row numbers."""
        return replace(rows.chosen(self, index), prompts=self.prompts.rows(index))

    def to(self, device: torch.device | str) -> Rollout:
        """The same on `device`."""
        return replace(rows.moved(self, device), prompts=self.prompts.to(device))

    @staticmethod
    def concatenated(rollouts: Sequence[Rollout], pad: int) -> Rollout:
        """All sequences of rollouts of one engine, prompts padded to one length with `pad`."""
        prompts = Prompts.concatenated([rollout.prompts for rollout in rollouts], pad)
        return replace(rows.joined(rollouts), prompts=prompts)
