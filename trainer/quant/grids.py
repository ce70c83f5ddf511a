"""Rounding onto the small grids, in torch, and the scales that map data onto them.

Grids (OCP Microscaling Formats v1.0, section 5.3; OCP 8-bit Floating Point v1.0):

- E4M3 (`float8_e4m3fn`): 3 mantissa bits, largest 448, smallest normal 2^-6, smallest subnormal 2^-9; NaN, no infinity.
- E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives; neither infinity nor NaN.
- E8M0: powers of two from 2^-127 to 2^127, and NaN.

Rounding is to nearest, ties to even, and saturates; signed zeros keep their sign.

Constants enter divisions as tensors on purpose: torch divides by a Python number on CUDA as a multiplication by its
reciprocal, and evaluates `number / tensor` as `tensor.reciprocal() * number`; neither is the correctly rounded
quotient.
"""

from __future__ import annotations

import torch
from torch import Tensor

E4M3_MAX = 448.0
E2M1_MAX = 6.0
E8M0_BIAS = 127
E8M0_NAN = 255
FLOAT32_MAX = torch.finfo(torch.float32).max
FLOAT32_TINY = torch.finfo(torch.float32).tiny


def absmax(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """max |x| over `dims`, kept as 1; NaN where anything is NaN or infinite, 0 where nothing is."""
    if x.numel() == 0:
        return x.abs().sum(dims, keepdim=True)
    amax = x.abs().amax(dims, keepdim=True)
    return torch.where(torch.isinf(amax), torch.full_like(amax, torch.nan), amax)


def to_e4m3(x: Tensor) -> Tensor:
    """`x` rounded to float8_e4m3fn, saturating at +-448; NaN stays NaN.

    The clamp is explicit because the cast saturates in some versions of torch and gives NaN in others.
    """
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def to_e2m1(x: Tensor) -> Tensor:
    """`x` rounded to the E2M1 grid, as float32, saturating at +-6; NaN, which the grid lacks, becomes 0."""
    magnitude = x.abs().clamp(max=E2M1_MAX)
    step = torch.where(magnitude < 4.0, torch.ones_like(magnitude), 2.0)
    step = torch.where(magnitude < 2.0, 0.5, step)
    return torch.copysign((magnitude / step).round_().mul_(step).nan_to_num_(nan=0.0), x)


def e8m0_floor_scale(amax: Tensor, grid_exponent: int) -> Tensor:
    """The scale 2^(floor(log2 amax) - grid_exponent) as float8_e8m0fnu, saturating at 2^-127; NaN for a NaN.

    The exponent is read from the bits: torch's own cast to float8_e8m0fnu rounds to the nearest power of two.
    """
    exponent_bits = (amax.view(torch.int32) >> 23) & 0xFF
    codes = torch.where(exponent_bits == 0xFF, E8M0_NAN, (exponent_bits - grid_exponent).clamp(min=0))
    return codes.to(torch.uint8).view(torch.float8_e8m0fnu)
