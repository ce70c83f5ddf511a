"""NVFP4: E2M1 elements, one E4M3 scale for 16 values along K, and one float32 scale for a weight or for a token.

In float32, in the order of Transformer Engine's reference quantiser (`reference_nvfp4.py` as of August 2026):

    enc   = min(F * 6 / amax, float32 max), dec = 1 / enc        amax over the weight, or over one row of an activation
    base  = block_amax * (enc * (1 / 6))
    s     = E4M3(clamp(base, <= 448))
    code  = E2M1(clamp(x * min(1 / (s * dec), float32 max), -6, 6))
    x_hat = (code * s) * dec

The amax of a weight is that of all it is merged with: see `merged`. F = 448 in plain NVFP4. A row-wise global scale
keeps a token's codes independent of the other tokens of the batch and of later tokens of its own sequence. A block
whose scale rounds to 0 comes out as zeros (with the sign of x); codes then carry no value.

Four-over-six (arXiv 2512.02010) has F = 256 and base = (block_amax / 6) * enc. It tries two scales for each block, s6 =
E4M3(base) and s4 = E4M3(1.5 * base), which map the largest value to 6 or to 4, where the grid is finer for values just
below it, and takes 4 if and only if its error is strictly smaller. The error is summed from left to right over the 16
values, each

    d = ((code * s) * amax) / (6 * F) - x,        error += d * d (MSE)  or  error += |d| (MAE)

With F = 448, 1.5 * base would saturate.

A NaN or an infinity makes the float32 scale NaN, and with it the weight, or the token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from trimtab.trainer.quant import kernels
from trimtab.trainer.quant.format import Family, NumberFormat, Quantized, Role
from trimtab.trainer.quant.grids import E2M1_MAX, E4M3_MAX, FLOAT32_MAX, absmax, to_e2m1, to_e4m3

BLOCK = 16
ErrorRule = Literal["mse", "mae"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvFp4(NumberFormat):
    """`scale` is float8_e4m3fn, [..., K / 16]; `global_scale` (dec above) is float32, [1, 1] or [..., 1]."""

    four_over_six: ErrorRule | None = None
    """How the errors of the two candidates are measured; None without four-over-six."""
    family: ClassVar[Family] = "nvfp4"
    tensor_wide: ClassVar[bool] = True

    @property
    @override
    def scale_mode(self) -> str:
        return f"e4m3 block 16, bound {self.scale_bound:.0f}, float32 per token activations, per tensor weights"

    @property
    @override
    def tie_rule(self) -> str:
        return "none" if self.four_over_six is None else f"{self.four_over_six}, ties to 6"

    @property
    def scale_bound(self) -> float:
        """F above: the largest block scale that the global scale leaves room for."""
        return E4M3_MAX if self.four_over_six is None else 256.0

    @override
    def block(self, role: Role) -> tuple[int, int]:
        return (1, BLOCK)

    @override
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        self.check_input(x, role, amax)
        if amax is None:
            amax = absmax(x, (0, 1) if role == "weight" else (-1,))
        enc, dec = global_scales(amax, self.scale_bound)
        blocks = x.reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
        block_amax = absmax(blocks, (-1,))
        if self.four_over_six is None:
            codes, scale = encode(blocks, plain_base(block_amax, enc[..., None]), dec[..., None])
        else:
            base = (block_amax / torch.full_like(block_amax, E2M1_MAX)) * enc[..., None]
            codes, scale = self._better_of_two(blocks, base, amax[..., None], dec[..., None])
        return Quantized(codes=codes.reshape(x.shape), scale=scale.squeeze(-1), global_scale=dec)

    def _better_of_two(self, blocks: Tensor, base: Tensor, amax: Tensor, dec: Tensor) -> tuple[Tensor, Tensor]:
        """Codes and scales of four-over-six."""
        codes6, scale6 = encode(blocks, base, dec)
        codes4, scale4 = encode(blocks, base * 1.5, dec)
        pick4 = self._error(blocks, codes4, scale4, amax) < self._error(blocks, codes6, scale6, amax)
        scale = torch.where(pick4, scale4.to(torch.float32), scale6.to(torch.float32)).to(torch.float8_e4m3fn)
        return torch.where(pick4, codes4, codes6), scale

    def _error(self, blocks: Tensor, codes: Tensor, scale: Tensor, amax: Tensor) -> Tensor:
        """Error of each block in the units of x (squared: of their squares), [..., 1], summed from left to right."""
        values = codes * scale.to(torch.float32) * amax
        difference = values / torch.full_like(amax, self.scale_bound * E2M1_MAX) - blocks
        terms = difference.abs() if self.four_over_six == "mae" else difference.square()
        error = terms[..., :1]
        for i in range(1, BLOCK):
            error = error + terms[..., i : i + 1]
        return error

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        assert q.scale is not None
        assert q.global_scale is not None
        blocks = q.codes.reshape(*q.scale.shape, BLOCK)
        return (blocks * q.scale.to(torch.float32)[..., None] * q.global_scale[..., None]).reshape(q.codes.shape)

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role, amax: int | None) -> None:
        group = x.numel() if role == "weight" else x.shape[-1]
        kernels_by_rule = {None: library.nvfp4, "mse": library.nvfp4_46, "mae": library.nvfp4_46_mae}
        kernel = kernels_by_rule[self.four_over_six]
        kernel(x.data_ptr(), out.data_ptr(), x.numel() // group, group, amax)


def global_scales(amax: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """enc and dec above for the largest block scale `bound`."""
    enc = (torch.full_like(amax, bound * E2M1_MAX) / amax).clamp(max=FLOAT32_MAX)
    return enc, enc.reciprocal()


def plain_base(block_amax: Tensor, enc: Tensor) -> Tensor:
    """base above without four-over-six."""
    return block_amax * (enc * torch.full_like(enc, E2M1_MAX).reciprocal())


def encode(
    blocks: Tensor, base: Tensor, dec: Tensor, to_grid: Callable[[Tensor], Tensor] = to_e2m1
) -> tuple[Tensor, Tensor]:
    """Codes, in the shape of `blocks`, and E4M3 scales, in that of `base`, for the unrounded scale `base`."""
    scale = to_e4m3(base)
    multiplier = (scale.to(torch.float32) * dec).reciprocal().clamp(max=FLOAT32_MAX)
    return to_grid(blocks * multiplier), scale
