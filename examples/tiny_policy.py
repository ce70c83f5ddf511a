"""What the examples train: a policy of a few thousand weights that learns to answer with the largest token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

VOCABULARY, WIDTH, LENGTH, GROUP = 12, 32, 8, 16


class Policy(nn.Module):
    """The next token from the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Log-probabilities `[B, T, V]` of the token after each of `[B, T]`."""
        return torch.log_softmax(self.head(torch.tanh(self.hidden(self.embedding(tokens)))), -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """A group of responses, by the names that `Emitter.observe` takes."""

    tokens: torch.Tensor
    """`[B, T + 1]`; the first is the prompt."""
    rollout_logprobs: torch.Tensor
    """`[B, T]`, as the sampler had them."""
    advantages: torch.Tensor
    """`[B, 1]`."""
    loss_mask: torch.Tensor
    """`[B, T]`."""
    reward_mean: float


@torch.no_grad()
def sampled(policy: nn.Module, generator: torch.Generator) -> Rollouts:
    """Responses of the policy as it is, and what they are worth."""
    tokens, logprobs = torch.zeros(GROUP, 1, dtype=torch.long), []
    for _ in range(LENGTH):
        after = policy(tokens[:, -1:])[:, -1]
        token = torch.multinomial(after.exp(), 1, generator=generator)
        logprobs.append(after.gather(-1, token))
        tokens = torch.cat([tokens, token], 1)
    rewards = (tokens[:, 1:] == VOCABULARY - 1).float().mean(1, keepdim=True)
    return Rollouts(
        tokens=tokens,
        rollout_logprobs=torch.cat(logprobs, 1),
        advantages=(rewards - rewards.mean()) / (rewards.std() + 1e-4),
        loss_mask=torch.ones(GROUP, LENGTH),
        reward_mean=rewards.mean().item(),
    )


def logprobs_of(policy: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Log-probabilities `[B, T]` of the tokens of a response, which can be trained."""
    return policy(tokens[:, :-1]).gather(-1, tokens[:, 1:, None])[..., 0]


def clipped(
    logprobs: torch.Tensor, rollouts: Rollouts, low: float | torch.Tensor, high: float | torch.Tensor
) -> torch.Tensor:
    """PPO's clipped loss `[B, T]`, with the ratio against the sampler."""
    ratio = (logprobs - rollouts.rollout_logprobs).exp()
    advantages, mask = rollouts.advantages, rollouts.loss_mask
    bounded = torch.minimum(torch.maximum(ratio, torch.as_tensor(low)), torch.as_tensor(high))
    return -torch.minimum(ratio * advantages, bounded * advantages) * mask
