"""Log-probs of responses under one copy of the model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


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


def gathered(log_p: Tensor, tokens: Tensor) -> Tensor:
    """[B, T] log-prob of each token from [B, T, V]."""
    return log_p.gather(2, tokens.unsqueeze(2)).squeeze(2)


def entropies(log_p: Tensor) -> Tensor:
    """[B, T] entropy of each distribution, nats."""
    return -(log_p.exp() * log_p).sum(-1)
