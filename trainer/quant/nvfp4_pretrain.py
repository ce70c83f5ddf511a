"""NVFP4 as NVIDIA pre-trains with it (arXiv 2509.25149; Transformer Engine's `NVFP4BlockScaling` recipe).

The arithmetic is that of plain NVFP4 (see `nvfp4`) with F = 448 and these differences:

- A weight has one E4M3 scale for 16 x 16 values, so that W and its transpose, which the backward pass multiplies, are
  quantised to the same numbers; activations and gradients keep 1 x 16 blocks.
- The float32 scale is one for the tensor, for all three.
- Gradients are rounded stochastically, with torch's default generator, so that a checkpoint of its state repeats them.
- In a quantised weight gradient both operands go through a random Hadamard transform along the tokens (`hadamard`).

The float32 scale of an activation depends on all tokens of its batch, and so on later tokens of its own sequence: a
recipe for reinforcement learning wants plain NVFP4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from trimtab.trainer.quant import kernels
from trimtab.trainer.quant.format import Family, NumberFormat, Quantized, Role
from trimtab.trainer.quant.grids import E4M3_MAX, absmax, to_e2m1, to_e2m1_stochastic
from trimtab.trainer.quant.nvfp4 import BLOCK, encode, global_scales, plain_base


@dataclass(frozen=True, slots=True, kw_only=True)
class NvFp4Pretrain(NumberFormat):
    """`scale` is float8_e4m3fn, [N / 16, K / 16] for a weight and [..., K / 16] otherwise; `global_scale` is float32,
    with as many dimensions as the tensor has, all 1."""

    family: ClassVar[Family] = "nvfp4"
    tensor_wide: ClassVar[bool] = True
    rotates: ClassVar[bool] = True

    @property
    @override
    def scale_mode(self) -> str:
        return "e4m3 block 1x16 activations, 16x16 weights, bound 448, float32 per tensor"

    @override
    def block(self, role: Role) -> tuple[int, int]:
        return (BLOCK if role == "weight" else 1, BLOCK)

    def _blocked(self, x: Tensor, role: Role) -> tuple[Tensor, tuple[int, ...]]:
        """`x` as a view with its blocks apart, and the dimensions of one block."""
        columns = (x.shape[-1] // BLOCK, BLOCK)
        if role == "weight":
            return x.reshape(x.shape[0] // BLOCK, BLOCK, *columns), (1, 3)
        return x.reshape(*x.shape[:-1], *columns), (-1,)

    @override
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        self.check_input(x, role, amax)
        amax = absmax(x, tuple(range(x.dim()))) if amax is None else amax
        enc, dec = global_scales(amax, E4M3_MAX)
        blocks, dims = self._blocked(x, role)
        base = plain_base(absmax(blocks, dims), enc.reshape([1] * blocks.dim()))
        to_grid = to_e2m1_stochastic if role == "gradient" else to_e2m1
        codes, scale = encode(blocks, base, dec.reshape([1] * blocks.dim()), to_grid)
        return Quantized(codes=codes.reshape(x.shape), scale=scale.squeeze(dims), global_scale=dec)

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        assert q.scale is not None
        assert q.global_scale is not None
        blocks, _ = self._blocked(q.codes, role)
        scale = q.scale.to(blocks.dtype)
        scale = scale[:, None, :, None] if role == "weight" else scale[..., None]
        return (blocks * scale * q.global_scale.reshape([1] * blocks.dim())).reshape(q.codes.shape)

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role, amax: int | None) -> None:
        if role == "weight":
            library.nvfp4_tiles(x.data_ptr(), out.data_ptr(), x.shape[0], x.shape[1], amax)
        else:
            library.nvfp4(x.data_ptr(), out.data_ptr(), 1, x.numel(), amax)

    @override
    def fake(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Tensor:
        if role == "gradient":  # the kernels have no generator
            return self.dequantize(self.quantize(x.detach(), role, amax), role)
        return super(NvFp4Pretrain, self).fake(x, role, amax)
