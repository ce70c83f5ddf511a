"""A key-value cache in FP8 as vLLM's kernels for CPUs store it: what lies between two codes goes to the smaller one.

vLLM 0.32 cuts the mantissa off (`float_to_fp8e4m3_scalar` and `float_to_fp8e5m2_scalar` in its csrc/cpu), where the
formats, and its kernels for GPUs, round to nearest. So keys and values shrink, by half a step of the grid on average,
and tokens come out as far from the trainer's as the format itself puts them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from trimtab.trainer.models.huggingface import FormattedCache
from trimtab.trainer.quant.grids import FP8_MAX, Fp8Elements, to_fp8

ELEMENTS: dict[str, Fp8Elements] = {"fp8": "e4m3", "fp8-e5m2": "e5m2"}


def truncated(x: Tensor, kv_format: str) -> Tensor:
    """`x`, of any shape and dtype, rounded towards zero onto the grid of `kv_format`, saturating."""
    elements = ELEMENTS[kv_format]
    clamped = x.float().clamp(-FP8_MAX[elements], FP8_MAX[elements])
    nearest = to_fp8(clamped, elements)
    codes = nearest.view(torch.uint8)
    # The code before is the next smaller magnitude, the signs being equal.
    smaller = torch.where(nearest.float().abs() > clamped.abs(), codes - 1, codes)
    return smaller.view(nearest.dtype).to(x.dtype)


class TruncatedCache(FormattedCache):
    """A `FormattedCache` that rounds towards zero."""

    @override
    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """As `FormattedCache.update`, which finds nothing left to round."""
        key, value = truncated(key_states, self.kv_format), truncated(value_states, self.kv_format)
        return super().update(key, value, layer_idx, *args, **kwargs)
