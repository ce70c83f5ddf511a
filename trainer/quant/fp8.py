"""FP8 (E4M3) with float32 scales: one for a tensor, a row, or a block.

For every group of values that share a scale, in float32:

    s     = max(amax / 448, 2^-126)
    code  = E4M3(clamp(x / s, -448, 448))
    x_hat = code * s

The lower bound on s keeps zero groups at zero and away from subnormal scales, whose own rounding error would be large;
groups with amax below 448 * 2^-135 become zero. A NaN or an infinity in a group makes its scale NaN.

The groups are those of torchao's TENSORWISE and ROWWISE recipes and of DeepSeek-V3's block scaling (arXiv 2412.19437,
section 3.3).

Blocks need not divide a tensor: the last of a row or a column is then smaller, as in DeepSeek's own kernels, whose
grids of scales have ceil(N / 128) by ceil(K / 128) entries (`weight_dequant` of DeepSeek-V3, `per_token_cast_to_fp8`
and `per_block_cast_to_fp8` of DeepGEMM). Zeros that fill up such a block change neither its amax nor a code. Some
serving engines refuse these shapes: in vLLM the block must divide each rank's part of a weight under tensor
parallelism, and always the rows of all but the last of the weights that it merges (`validate_fp8_block_shape`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
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
    tensor_wide: ClassVar[bool] = True

    @property
    @override
    def scale_mode(self) -> str:
        return "float32 per tensor"

    @override
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        self.check_input(x, role, amax)
        scale = fp8_scale(absmax(x, tuple(range(x.dim()))) if amax is None else amax)
        return Quantized(codes=to_e4m3(x / scale), scale=scale)

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        assert q.scale is not None
        return q.codes.to(torch.float32) * q.scale

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role, amax: int | None) -> None:
        library.fp8_groups(x.data_ptr(), out.data_ptr(), 1, x.numel(), x.numel(), amax)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Row(NumberFormat):
    """One scale for each token of an activation and each output channel of a weight: `scale` is [..., 1]."""

    family: ClassVar[Family] = "fp8"

    @property
    @override
    def scale_mode(self) -> str:
        return "float32 per row"

    @override
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        self.check_input(x, role, amax)
        scale = fp8_scale(absmax(x, (-1,)))
        return Quantized(codes=to_e4m3(x / scale), scale=scale)

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        assert q.scale is not None
        return q.codes.to(torch.float32) * q.scale

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role, amax: int | None) -> None:
        columns = x.shape[-1]
        library.fp8_groups(x.data_ptr(), out.data_ptr(), x.numel() // columns, columns, columns, amax)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Block(NumberFormat):
    """One scale for each 1 x `size` block of an activation and each `size` x `size` tile of a weight.

    `scale` is [..., ceil(K / size)] for an activation and [ceil(N / size), ceil(K / size)] for a weight.
    """

    size: int = 128
    family: ClassVar[Family] = "fp8"

    @property
    @override
    def scale_mode(self) -> str:
        return f"float32 block 1x{self.size} activations, {self.size}x{self.size} weights"

    def _blocked(self, x: Tensor, role: Role) -> tuple[Tensor, tuple[int, ...]]:
        """`x`, with zeros up to whole blocks, as a view with its blocks apart, and the dimensions of one block."""
        right, below = -x.shape[-1] % self.size, -x.shape[0] % self.size if role == "weight" else 0
        if right or below:
            x = F.pad(x, (0, right, 0, below) if role == "weight" else (0, right))
        columns = (x.shape[-1] // self.size, self.size)
        if role == "weight":
            return x.reshape(x.shape[0] // self.size, self.size, *columns), (1, 3)
        return x.reshape(*x.shape[:-1], *columns), (-1,)

    def _joined(self, blocks: Tensor, shape: torch.Size, role: Role) -> Tensor:
        """The tensor of `shape` that `_blocked` took apart, contiguous."""
        if role == "weight":
            return blocks.flatten(2, 3).flatten(0, 1)[: shape[0], : shape[1]].contiguous()
        return blocks.flatten(-2)[..., : shape[-1]].contiguous()

    @override
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        self.check_input(x, role, amax)
        blocks, dims = self._blocked(x, role)
        scale = fp8_scale(absmax(blocks, dims))
        return Quantized(codes=self._joined(to_e4m3(blocks / scale), x.shape, role), scale=scale.squeeze(dims))

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        assert q.scale is not None
        blocks, _ = self._blocked(q.codes.to(torch.float32), role)
        scale = q.scale[:, None, :, None] if role == "weight" else q.scale[..., None]
        return self._joined(blocks * scale, q.codes.shape, role)

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role, amax: int | None) -> None:
        if role == "weight":
            library.fp8_tiles(x.data_ptr(), out.data_ptr(), x.shape[0], x.shape[1], self.size)
        else:
            columns = x.shape[-1]
            library.fp8_groups(x.data_ptr(), out.data_ptr(), x.numel() // columns, columns, self.size, amax)
