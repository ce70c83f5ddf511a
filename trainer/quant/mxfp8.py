"""MXFP8: E4M3 elements with one E8M0 scale for 32 values along K (OCP Microscaling Formats v1.0, section 6.3).

For every block, in float32:

    s     = 2^(floor(log2 amax) - 8), at least 2^-127        (FLOOR: 8 is the exponent of 448)
    s     = 2^ceil(log2(amax / 448)), at least 2^-127        (RCEIL)
    code  = E4M3(clamp(x / s, -448, 448))
    x_hat = code * s

x / s and code * s are exact but for float32 underflow. FLOOR, the rule of the OCP specification, leaves x / s in
[256, 512) for the largest value, so that what lies above 448 * s saturates; RCEIL, the rule of NVIDIA's own kernels
(cuBLAS, "1D block scaling"; torchao's RCEIL), rounds the scale up so that nothing does. Both read the exponent from
the bits of amax. A NaN or an infinity makes its block's scale NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from trimtab.trainer.quant import kernels
from trimtab.trainer.quant.format import Family, NumberFormat, Quantized, Role
from trimtab.trainer.quant.grids import absmax, e8m0_scale, to_e4m3

BLOCK = 32
ScaleRule = Literal["floor", "rceil"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MxFp8(NumberFormat):
    """`scale` is float8_e8m0fnu, [..., K / 32]."""

    rule: ScaleRule = "floor"
    family: ClassVar[Family] = "mxfp8"

    @property
    @override
    def scale_mode(self) -> str:
        return f"e8m0 block 32, {self.rule}"

    @override
    def block(self, role: Role) -> tuple[int, int]:
        return (1, BLOCK)

    @override
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        self.check_input(x, role, amax)
        blocks = x.reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
        scale = e8m0_scale(absmax(blocks, (-1,)), round_up=self.rule == "rceil")
        codes = to_e4m3(blocks / scale.to(torch.float32))
        return Quantized(codes=codes.reshape(x.shape), scale=scale.squeeze(-1))

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        assert q.scale is not None
        blocks = q.codes.to(torch.float32).reshape(*q.scale.shape, BLOCK)
        return (blocks * q.scale.to(torch.float32)[..., None]).reshape(q.codes.shape)

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role, amax: int | None) -> None:
        kernel = library.mxfp8_rceil if self.rule == "rceil" else library.mxfp8
        kernel(x.data_ptr(), out.data_ptr(), x.numel() // BLOCK)
