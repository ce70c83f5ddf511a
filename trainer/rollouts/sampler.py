"""What the trainer needs of an engine that samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.config import ConfigError
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.tasks.task import Prompts

Weights = Mapping[str, Tensor]
"""By the names of the trainer's state dict."""
InFlight = Literal["keep", "drop"]
"""What happens to the keys and values of half-done responses when weights arrive: they stay, and the rest of the
response comes from neither policy, or they are computed anew with the new weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Weights for a sampler, and what to compute with them in."""

    weights: Weights
    version: int
    number_format: str
    kv_format: str = "none"

    @property
    def key(self) -> tuple[int, str, str]:
        """What tells one update of a run from another."""
        return self.version, self.number_format, self.kv_format


Arrivals = Callable[[], Update | None]
"""Asked between tokens; the update that is to be taken over in flight, if there is one."""


class SamplerError(RuntimeError):
    """A sampler that cannot sample; the message says why and what to do."""


class SyncError(SamplerError):
    """Weights that a sampler could not take over whole, or does not compute with although it said so.

    It samples no more until a later `sync` succeeds: training on such rollouts would be training on garbage.
    """


def check_length(width: int, length: int, context: int | None) -> None:
    """Refuse responses of `length` tokens behind prompts of `width` that a model of so large a `context` cannot read.

    Raises:
        ConfigError: they are too long; a context of None takes any.
    """
    if context is not None and width + length > context:
        raise ConfigError(
            f"task.response_length: {length} tokens after a prompt of {width} are more than the {context} of "
            "the model's context; give shorter responses or prompts"
        )


class Sampler(Protocol):
    """An engine that samples with weights that it is given now and then."""

    @property
    def version(self) -> int:
        """Of the weights that it holds; -1 before the first."""
        ...

    def sync(self, update: Update) -> None:
        """Take over `update`.

        Raises:
            SyncError: it could not.
        """
        ...

    def generate(
        self,
        prompts: Prompts,
        length: int,
        *,
        samples: int = 1,
        head: int,
        temperature: float,
        generator: torch.Generator,
        arrivals: Arrivals | None = None,
    ) -> Rollout:
        """Sample `samples` responses of up to `length` tokens for each of the prompts, in consecutive rows.

        Args:
            prompts: [B, P] tokens.
            length: most tokens of a response.
            samples: responses a prompt.
            head: top log-probs recorded for each token; more than the vocabulary is all of it.
            temperature: what logits are divided by; log-probs are of the distribution after it.
            generator: where the randomness comes from: the same state gives the same responses.
            arrivals: where weights that arrive in flight come from; None if they only change between calls.

        Raises:
            ConfigError: the longest prompt and `length` are more than the model was made for.
            SamplerError: the engine cannot sample.
        """
        ...

    def contract(self) -> dict[str, TensorContract]:
        """What each weight is computed in, by the names of the trainer's state dict."""
        ...

    def close(self) -> None:
        """End the engine and free what it holds. Safe to call twice."""
        ...
