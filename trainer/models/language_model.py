"""What the trainer and the sampler need of a model."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class LanguageModel(Protocol):
    """What the trainer and the sampler need of a model."""

    def __call__(self, tokens: Tensor, *, cache: Any = None, keep_last: int | None = None) -> Tensor:
        """Logits of [B, T] token ids; see `DecoderLM.forward`."""
        ...

    def new_cache(self, batch: int, capacity: int) -> Any:
        """An empty cache for `batch` sequences of up to `capacity` tokens; only the model looks inside."""
        ...
