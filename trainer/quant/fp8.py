"""FP8 with float32 scales: one for a tensor, a row, or a block.

For every group of values that share a scale, in float32, with L = 448 for E4M3 elements and 57344 for E5M2:

    s     = max(amax / L, 2^-126)
    code  = FP8(clamp(x / s, -L, L))
    x_hat = code * s

Elements are E4M3 unless a format says otherwise, for weights, activations and gradients apart: E5M2 has a bit less of
significand and four powers of two more on either side. E4M3 forward with E5M2 gradients is Transformer Engine's
`Format.HYBRID` (arXiv 2209.05433, section 3). A format may also accumulate as Hopper does: see `accumulate`.

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
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from trimtab.trainer.quant import kernels
from trimtab.trainer.quant.format import Family, NumberFormat, Quantized, Role
from trimtab.trainer.quant.grids import FLOAT32_TINY, FP8_MAX, Fp8Elements, absmax, to_e4m3, to_fp8


def fp8_scale(amax: Tensor, elements: Fp8Elements = "e4m3") -> Tensor:
    """max(amax / 448, 2^-126), or / 57344; NaN for a NaN."""
    return (amax / torch.full_like(amax, FP8_MAX[elements])).clamp(min=FLOAT32_TINY)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fp8(NumberFormat):
    """FP8 whose scales are of whole rows at the least."""

    weights: Fp8Elements = "e4m3"
    activations: Fp8Elements = "e4m3"
    gradients: Fp8Elements = "e4m3"
    accumulation: Literal["float32", "14 bits"] = "float32"
    """How products are added up: see `accumulate`."""
    family: ClassVar[Family] = "fp8"

    @property
    @override
    def short_accumulator(self) -> bool:
        return self.accumulation == "14 bits"

    def elements(self, role: Role) -> Fp8Elements:
        """Those of a tensor in `role`."""
        return {"weight": self.weights, "activation": self.activations, "gradient": self.gradients}[role]

    def _told(self, scales: str) -> str:
        """`scales`, and what else of the format a contract compares."""
        kinds: dict[Role, Fp8Elements] = {role: self.elements(role) for role in ("weight", "activation", "gradient")}
        wide = [f"{role}s" for role, elements in kinds.items() if elements == "e5m2"]
        parts = [scales, f"e5m2 {', '.join(wide)}" if wide else ""]
        parts.append(f"{self.accumulation} accumulated" if self.short_accumulator else "")
        return "; ".join(part for part in parts if part)

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        assert q.scale is not None
        return q.codes.to(torch.float32) * q.scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Tensor(_Fp8):
    """One scale for the tensor; `scale` has as many dimensions as the tensor, all 1.

    The scale of an activation depends on everything in its batch, so that a token is quantised differently among a
    prompt's tokens and alone: trainer and sampler disagree even where both compute in this format.
    """

    tensor_wide: ClassVar[bool] = True

    @property
    @override
    def scale_mode(self) -> str:
        return self._told("float32 per tensor")

    @override
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        self.check_input(x, role, amax)
        elements = self.elements(role)
        scale = fp8_scale(absmax(x, tuple(range(x.dim()))) if amax is None else amax, elements)
        return Quantized(codes=to_fp8(x / scale, elements), scale=scale)

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role, amax: int | None) -> None:
        kernel = library.fp8_groups if self.elements(role) == "e4m3" else library.e5m2_groups
        kernel(x.data_ptr(), out.data_ptr(), 1, x.numel(), x.numel(), amax)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Row(_Fp8):
    """One scale for each token of an activation and each output channel of a weight: `scale` is [..., 1]."""

    @property
    @override
    def scale_mode(self) -> str:
        return self._told("float32 per row")

    @override
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        self.check_input(x, role, amax)
        elements = self.elements(role)
        scale = fp8_scale(absmax(x, (-1,)), elements)
        return Quantized(codes=to_fp8(x / scale, elements), scale=scale)

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role, amax: int | None) -> None:
        kernel = library.fp8_groups if self.elements(role) == "e4m3" else library.e5m2_groups
        columns = x.shape[-1]
        kernel(x.data_ptr(), out.data_ptr(), x.numel() // columns, columns, columns, amax)


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
