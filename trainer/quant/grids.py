"""Rounding onto the small grids, in torch, and the scales that map data onto them.

Grids (OCP Microscaling Formats v1.0, section 5.3; OCP 8-bit Floating Point v1.0):

- E4M3 (`float8_e4m3fn`): 3 mantissa bits, largest 448, smallest normal 2^-6, smallest subnormal 2^-9; NaN, no infinity.
- E5M2 (`float8_e5m2`): 2 mantissa bits, largest 57344, smallest normal 2^-14, smallest subnormal 2^-16; both.
- E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives; neither infinity nor NaN.
- E8M0: powers of two from 2^-127 to 2^127, and NaN.

Rounding is to nearest, ties to even, and saturates; signed zeros keep their sign.

Constants enter divisions as tensors on purpose: torch divides by a Python number on CUDA as a multiplication by its
reciprocal, and evaluates `number / tensor` as `tensor.reciprocal() * number`; neither is the correctly rounded
quotient.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

E4M3_MAX = 448.0
E4M3_EXPONENT = 8
"""Of 448."""
E5M2_MAX = 57344.0
Fp8Elements = Literal["e4m3", "e5m2"]
FP8_MAX: dict[Fp8Elements, float] = {"e4m3": E4M3_MAX, "e5m2": E5M2_MAX}
E2M1_MAX = 6.0
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


def to_fp8(x: Tensor, elements: Fp8Elements) -> Tensor:
    """`x` rounded to the FP8 type with these elements."""
    return to_e4m3(x) if elements == "e4m3" else to_e5m2(x)


def to_e5m2(x: Tensor) -> Tensor:
    """`x` rounded to float8_e5m2, saturating at +-57344, infinities too; NaN stays NaN."""
    return x.clamp(-E5M2_MAX, E5M2_MAX).to(torch.float8_e5m2)


def to_e2m1(x: Tensor) -> Tensor:
    """`x` rounded to the E2M1 grid, as float32, saturating at +-6; NaN, which the grid lacks, becomes 0."""
    magnitude = x.abs().clamp(max=E2M1_MAX)
    step = _e2m1_step(magnitude)
    return torch.copysign((magnitude / step).round_().mul_(step).nan_to_num_(nan=0.0), x)


def to_e2m1_stochastic(x: Tensor) -> Tensor:
    """`x` on one of the two neighbours in the E2M1 grid, as float32, up with the probability that makes the mean `x`.

    Draws from torch's default generator for the device of `x`, so that a restored generator repeats the rounding.
    Saturates and treats NaN as `to_e2m1` does.
    """
    magnitude = x.abs().clamp(max=E2M1_MAX)
    step = _e2m1_step(magnitude)
    steps = magnitude / step
    below = steps.floor()
    up = torch.rand_like(below) < steps - below
    return torch.copysign(((below + up) * step).nan_to_num_(nan=0.0), x)


def _e2m1_step(magnitude: Tensor) -> Tensor:
    step = torch.where(magnitude < 4.0, torch.ones_like(magnitude), 2.0)
    return torch.where(magnitude < 2.0, 0.5, step)


def e8m0_scale(amax: Tensor, *, round_up: bool) -> Tensor:
    """The scale that maps `amax` into E4M3, as float8_e8m0fnu, saturating at 2^-127; NaN for a NaN.

    2^(floor(log2 amax) - 8), or rounded up 2^ceil(log2(amax / 448)). The exponent is read from the bits: torch's own
    cast to float8_e8m0fnu rounds to the nearest power of two, and its log2 rounds too.
    """
    bits = amax.view(torch.int32)
    exponent = (bits >> 23) & 0xFF
    codes = exponent - E4M3_EXPONENT
    if round_up:  # 448 is 1.75 * 2^8
        codes = codes + ((bits & 0x7FFFFF) > 0x600000)
    codes = torch.where(exponent == 0xFF, E8M0_NAN, codes.clamp(min=0))
    return codes.to(torch.uint8).view(torch.float8_e8m0fnu)
