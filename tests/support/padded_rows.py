"""Batches of left-padded token rows."""

from __future__ import annotations

import torch
from torch import Tensor


def padded_tokens(seed: int, *, vocabulary: int, length: int) -> tuple[Tensor, Tensor]:
    """[4, length] random tokens and how many at the left of each row are padding: none, and up to a third."""
    generator = torch.Generator().manual_seed(seed)
    padding = torch.randint(1, length // 3, (4,), generator=generator)
    padding[1] = 0
    tokens = torch.randint(1, vocabulary, (4, length), generator=generator)
    return tokens * (torch.arange(length) >= padding[:, None]), padding
