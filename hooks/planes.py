"""A batch's tensors as arrays on the host, checked for shape, without copying what need not be copied."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.layout import TENSORS
from trimtab.hooks.records import TokenBatch


@dataclass(frozen=True, slots=True)
class Planes:
    """Contiguous arrays of fitting shapes."""

    mask: NDArray[Any]
    """Tokens where it is not zero count; 1, 4 or 8 bytes each."""
    values: dict[str, NDArray[np.float32]]
    """By tensor name: the mask's shape, but for advantages that are one a sequence, [B]."""


def planes(batch: TokenBatch) -> Planes:
    """The planes of a batch of arrays, or of tensors on the CPU.

    Raises:
        ValueError: a tensor has the wrong shape; the message names it.
    """
    mask = np.ascontiguousarray(_as_array(batch.loss_mask))
    if mask.itemsize not in (1, 4, 8):
        mask = mask != 0
    values = {}
    for name in TENSORS:
        value = getattr(batch, name)
        if value is not None:
            array = np.ascontiguousarray(_as_array(value), dtype=np.float32)
            if array.shape != mask.shape:
                if name != "advantages" or mask.ndim != 2 or array.shape not in (mask.shape[:1], (len(mask), 1)):
                    raise ValueError(f"{name}: shape {array.shape} does not fit loss_mask's {mask.shape}")
                array = array.reshape(-1)
            values[name] = array
    if not {"advantages", "train_logprobs"} <= values.keys():
        raise ValueError("train_logprobs, advantages: both are needed")
    return Planes(mask, values)


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _as_array(value: Any) -> Any:
    """The memory of a CPU tensor, or a copy where numpy cannot share it; anything else as it is."""
    if not is_torch(value):
        return value
    try:
        return value.numpy(force=True)
    except TypeError:  # numpy has no bfloat16
        return value.float().numpy(force=True)
