"""The random Hadamard transform that spreads outliers over a block before it is quantised.

Along the last dimension, in blocks of 16: x <- x D H / 4, with H the Hadamard matrix of order 16 (Sylvester's) and D
the diagonal of the fixed signs that Transformer Engine uses (`get_wgrad_sign_vector`). D H / 4 is orthogonal, so that
the product of two operands that are contracted along the transformed dimension stays what it was.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

ORDER = 16
SIGNS = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)


@cache
def hadamard_matrix(device: torch.device) -> Tensor:
    """D H / 4, float32, [16, 16]; all of its entries are +-1/4."""
    index = torch.arange(ORDER)
    parity = sum((index[:, None] & index[None, :]) >> bit & 1 for bit in range(4)) % 2
    return (torch.tensor(SIGNS)[:, None] * (1 - 2 * parity) / 4.0).to(device)


def rotate(x: Tensor) -> Tensor:
    """`x`, [..., n] float32, with each block of 16 transformed; n must be a multiple of 16."""
    return (x.reshape(*x.shape[:-1], x.shape[-1] // ORDER, ORDER) @ hadamard_matrix(x.device)).reshape(x.shape)
