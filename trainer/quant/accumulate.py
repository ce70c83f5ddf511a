"""Matmuls that add up in 14 bits, as the FP8 tensor cores of Hopper GPUs do, with promotion to float32.

Products of codes are added up 32 at a time. Those and the accumulator are shifted to the largest exponent among them,
where a product has the sum of its operands' exponents; each is cut off, towards zero, below the 14th bit counted from
there; the sum is exact, and is cut off to 14 significant bits when it becomes the accumulator again. After every 128
products the accumulator is added to a float32 total and starts at zero. Scales multiply the total.

The 14 bits and the groups of 32: DeepSeek-V3 (arXiv 2412.19437, sections 3.3.2 and 3.5.2), which promotes after 128;
that H100 cuts off the accumulator at 13 bits of fraction: MMA-Sim (arXiv 2511.10909). Kernels with fast accumulation
do without promotion, and lose more.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from trimtab.trainer.quant import kernels
from trimtab.trainer.quant.format import Quantized

BITS = 14
TOGETHER = 32
"""Products that one instruction adds up."""
PROMOTED_EVERY = 128
"""Products between two additions to the float32 total."""
COLUMNS = 32
"""The compiled kernel computes so many outputs side by side."""
NO_EXPONENT = -63
"""Below that of every product of FP8 codes."""
CHUNK = 1 << 22
"""Most products that the torch code holds at a time."""


def multiply(x: Quantized, weight: Quantized) -> Tensor:
    """[..., K] by [N, K] to [..., N] float32; both in FP8, with one scale, or one a row."""
    assert x.scale is not None
    assert weight.scale is not None
    # A NaN comes with a NaN in its scale, which makes the outputs NaN below.
    codes = x.codes.to(torch.float32).nan_to_num_(nan=0.0).flatten(0, -2)
    weights = weight.codes.to(torch.float32).nan_to_num_(nan=0.0)
    library = kernels.library()
    if library is None or codes.device.type != "cpu" or codes.numel() == 0:
        y = added_up(codes, weights)
    else:
        y = _compiled(library, codes, weights)
    return y.reshape(*x.codes.shape[:-1], len(weights)) * x.scale * weight.scale.reshape(-1)


def added_up(a: Tensor, b: Tensor) -> Tensor:
    """[T, K] by [N, K] to [T, N]: what the compiled kernel computes, to the bit, in torch; both are values of FP8."""
    rows = max(1, CHUNK // max(1, b.shape[0] * TOGETHER))
    parts = [_added_up(a[start : start + rows], b) for start in range(0, len(a), rows)]
    return torch.cat(parts) if parts else a.new_zeros(0, len(b))


def _compiled(library: kernels.Library, a: Tensor, b: Tensor) -> Tensor:
    missing = -len(b) % COLUMNS
    turned = F.pad(b, (0, 0, 0, missing)).t().contiguous()
    a = a.contiguous()
    out = torch.empty(len(a), len(b) + missing)
    library.multiply_14_bits(a.data_ptr(), turned.data_ptr(), out.data_ptr(), len(a), a.shape[1], len(b) + missing)
    return out[:, : len(b)]


def _added_up(a: Tensor, b: Tensor) -> Tensor:
    total = accumulator = a.new_zeros(len(a), len(b))
    for start in range(0, a.shape[1], TOGETHER):
        left, right = a[:, None, start : start + TOGETHER], b[None, :, start : start + TOGETHER]
        products = left * right
        exponents = torch.where(products == 0, NO_EXPONENT, _exponent(left) + _exponent(right))
        top = torch.maximum(exponents.amax(-1), torch.where(accumulator == 0, NO_EXPONENT, _exponent(accumulator)))
        top = top.clamp_min(NO_EXPONENT)
        quantum = torch.ldexp(torch.ones_like(accumulator), top - (BITS - 1))
        sums = (products / quantum[..., None]).trunc().sum(-1) + (accumulator / quantum).trunc()
        accumulator = _cut(sums) * quantum
        if (start + TOGETHER) % PROMOTED_EVERY == 0 or start + TOGETHER >= a.shape[1]:
            total, accumulator = total + accumulator, torch.zeros_like(accumulator)
    return total


def _exponent(x: Tensor) -> Tensor:
    """floor(log2 |x|), int32."""
    return torch.frexp(x).exponent - 1


def _cut(x: Tensor) -> Tensor:
    """Integers in float32 with all but their first 14 bits cleared."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.ldexp(mantissa, torch.tensor(BITS)).trunc(), exponent - BITS)
