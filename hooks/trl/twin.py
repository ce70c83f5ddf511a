"""The BF16 twin of TRL's ratio: both sides of it from a forward pass of the same weights in BF16.

The old side has to be computed while the weights are still the old ones, that is when the batch is generated, so it
travels with the batch, through TRL's shuffling and splitting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

OLD = "trimtab_shadow_old_logps"

Shadow = Callable[[], AbstractContextManager[Any]]
"""Makes a context in which the trained model computes in BF16."""


@contextmanager
def own_randomness() -> Iterator[None]:
    """A forward pass in here leaves the run's random numbers as they were: dropout draws some."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """How it is computed, and on which batches."""

    shadow: Shadow | torch.nn.Module
    """A context for the trained model, or another model in BF16 that follows its weights."""
    every: int
    """Generations from one with a twin to the next."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"shadow_every: {self.every} is below 1")

    def logprobs(self, score: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Tensor:
        """What `score(model, ...)`, TRL's method, gives in BF16, [B, T] without gradient."""
        other = isinstance(self.shadow, torch.nn.Module)
        context = nullcontext() if other else self.shadow()
        with torch.no_grad(), own_randomness(), context:
            logprobs: Tensor = score(self.shadow if other else model, *args, **kwargs)[0]
        return logprobs.detach()
