"""FP8 (E4M3) with float32 scales: one for a tensor, a row, or a block.

For every group of values that share a scale, in float32:

    s     = max(amax / 448, 2^-126)
    code  = E4M3(clamp(x / s, -448, 448))
    x_hat = code * s

The lower bound on s keeps zero groups at zero and away from subnormal scales, whose own rounding error would be large;
groups with amax below 448 * 2^-135 become zero. A NaN or an infinity in a group makes its scale NaN.

The groups are those of torchao's TENSORWISE and ROWWISE recipes and of DeepSeek-V3's block scaling (arXiv 2412.19437,
section 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from trimtab.trainer.quant import kernels
from trimtab.trainer.quant.format import Family, NumberFormat, Quantized, Role
from trimtab.trainer.quant.grids import E4M3_MAX, FLOAT32_TINY, absmax, to_e4m3


def fp8_scale(amax: Tensor) -> Tensor:
    """max(amax / 448, 2^-126); NaN for a NaN."""
    return (amax / torch.full_like(amax, E4M3_MAX)).clamp(min=FLOAT32_TINY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Tensor(NumberFormat):
    """One scale for the tensor; `scale` has as many dimensions as the tensor, all 1."""

    family: ClassVar[Family] = "fp8"

    @property
    @override
    def scale_mode(self) -> str:
        return "float32 per tensor"

    @override
    def quantize(self, x: Tensor, role: Role) -> Quantized:
        self.check_input(x, role)
        scale = fp8_scale(absmax(x, tuple(range(x.dim()))))
        return Quantized(codes=to_e4m3(x / scale), scale=scale)

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        assert q.scale is not None
        return q.codes.to(torch.float32) * q.scale

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role) -> None:
        library.fp8_groups(x.data_ptr(), out.data_ptr(), 1, x.numel())


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Row(NumberFormat):
    """One scale for each token of an activation and each output channel of a weight: `scale` is [..., 1]."""

    family: ClassVar[Family] = "fp8"

    @property
    @override
    def scale_mode(self) -> str:
        return "float32 per row"

    @override
    def quantize(self, x: Tensor, role: Role) -> Quantized:
        self.check_input(x, role)
        scale = fp8_scale(absmax(x, (-1,)))
        return Quantized(codes=to_e4m3(x / scale), scale=scale)

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        assert q.scale is not None
        return q.codes.to(torch.float32) * q.scale

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role) -> None:
        library.fp8_groups(x.data_ptr(), out.data_ptr(), x.numel() // x.shape[-1], x.shape[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Block(NumberFormat):
    """One scale for each 1 x `size` block of an activation and each `size` x `size` tile of a weight.

    `scale` is [..., K / size] for an activation and [N / size, K / size] for a weight.
    """

    size: int = 128
    family: ClassVar[Family] = "fp8"

    @property
    @override
    def scale_mode(self) -> str:
        return f"float32 block 1x{self.size} activations, {self.size}x{self.size} weights"

    @override
    def block(self, role: Role) -> tuple[int, int]:
        return (self.size if role == "weight" else 1, self.size)

    def _blocked(self, x: Tensor, role: Role) -> tuple[Tensor, tuple[int, ...]]:
        """`x` as a view with its blocks apart, and the dimensions of one block."""
        columns = (x.shape[-1] // self.size, self.size)
        if role == "weight":
            return x.reshape(x.shape[0] // self.size, self.size, *columns), (1, 3)
        return x.reshape(*x.shape[:-1], *columns), (-1,)

    @override
    def quantize(self, x: Tensor, role: Role) -> Quantized:
        self.check_input(x, role)
        blocks, dims = self._blocked(x, role)
        scale = fp8_scale(absmax(blocks, dims))
        return Quantized(codes=to_e4m3(blocks / scale).reshape(x.shape), scale=scale.squeeze(dims))

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        assert q.scale is not None
        blocks, _ = self._blocked(q.codes.to(torch.float32), role)
        scale = q.scale[:, None, :, None] if role == "weight" else q.scale[..., None]
        return (blocks * scale).reshape(q.codes.shape)

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role) -> None:
        if role == "weight":
            library.fp8_tiles(x.data_ptr(), out.data_ptr(), x.shape[0], x.shape[1], self.size)
        else:
            library.fp8_groups(x.data_ptr(), out.data_ptr(), x.numel() // self.size, self.size)
