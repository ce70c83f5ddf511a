"""Log-probs of sampled responses under the trainer's copies of the model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.torch_sampler import entropies
from trimtab.trainer.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What one copy of the model makes of a rollout of B sequences, T response tokens and k head entries."""

    logprobs: Tensor
    """[B, T] of the responses."""
    head_logprobs: Tensor
    """[B, T, k] of the sampler's head."""
    entropy: Tensor
    """[B, T] of each distribution, nats."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """How a model's logits become log-probs: response positions only, at the sampling temperature."""

    response_length: int
    temperature: float

    def log_softmax(self, model: nn.Module, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """[B, T, V] of the response tokens, float32."""
        logits: Tensor = model(tokens, keep_last=self.response_length, padding=padding)
        return torch.log_softmax(logits.float() / self.temperature, -1)

    def logprobs(self, model: nn.Module, tokens: Tensor, padding: Tensor | None, responses: Tensor) -> Tensor:
        """[B, T] of the responses."""
        return gathered(self.log_softmax(model, tokens, padding), responses)

    def scored(self, model: nn.Module, rollout: Rollout, first: Tensor, world: World) -> tuple[Tensor, Scores]:
        """[rows, T, V] log-probs of this process's share of the rows `first`, with gradient, and the scores of all
        rows, without.

        The first update computes with the weights that score: its own forward pass is the score of its rows, so they
        are not computed twice.
        """
        rows = rollout.rows(first[world.share(len(first))])
        log_p = self.log_softmax(model, rows.inputs, rows.prompts.padding)
        with torch.no_grad():
            parts = [_scores(log_p, rows)]
            left = torch.ones(len(rollout.responses), dtype=torch.bool)
            left[first] = False
            rest = left.nonzero()[:, 0]
            if len(rest):
                rows = rollout.rows(rest[world.share(len(rest))])
                parts.append(_scores(self.log_softmax(model, rows.inputs, rows.prompts.padding), rows))
            order = torch.cat([first, rest]).argsort()
            columns = ([world.rows(tensor) for tensor in part] for part in zip(*parts, strict=True))
            logprobs, head_logprobs, entropy = (torch.cat(column)[order] for column in columns)
        return log_p, Scores(logprobs=logprobs, head_logprobs=head_logprobs, entropy=entropy)


def gathered(log_p: Tensor, tokens: Tensor) -> Tensor:
    """[B, T] log-prob of each token from [B, T, V]."""
    return log_p.gather(2, tokens.unsqueeze(2)).squeeze(2)


def _scores(log_p: Tensor, rows: Rollout) -> tuple[Tensor, Tensor, Tensor]:
    """The fields of `Scores` from [B, T, V]."""
    return gathered(log_p, rows.responses), log_p.gather(2, rows.head_ids), entropies(log_p)
