"""What the trainer and the sampler need of a model.

They ask for no more than `LanguageModel`, and that its linear layers are `nn.Linear`, so that they can be swapped for
quantised ones by name.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class LanguageModel(Protocol):
    """A causal language model over rows that are padded on the left."""

    @property
    def context(self) -> int | None:
        """Most tokens that a sequence may have; None if any number will do."""
        ...

    def __call__(
        self, tokens: Tensor, *, cache: Any = None, keep_last: int | None = None, padding: Tensor | None = None
    ) -> Tensor:
        """[B, T] token ids -> [B, T or keep_last, vocabulary] logits.

        Args:
            tokens: the next T tokens of each sequence.
            cache: what the sequences hold so far; extended in place. A filled cache takes one token at a time.
            keep_last: compute logits for the last so many positions only.
            padding: [B] how many tokens at the left of each sequence, from its very first one on, are padding; None if
                there are none. A row's logits behind its padding are those of the row without it; those of the padding
                itself mean nothing. Every call of a cached generation takes the same.
        """
        ...

    def new_cache(self, batch: int, capacity: int, kv_format: str = "none") -> Any:
        """An empty cache for `batch` sequences of up to `capacity` tokens, which holds keys and values in `kv_format`
        (see `trainer.quant.kv_cache`); only the model looks inside. Its `batch_repeat_interleave(n)` repeats each
        sequence `n` times in a row."""
        ...
