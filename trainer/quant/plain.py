"""The formats without scales: float32 (identity) and bfloat16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from trimtab.trainer.quant import kernels
from trimtab.trainer.quant.format import Family, NumberFormat, Quantized, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Float32(NumberFormat):
    """The identity."""

    identity: ClassVar[bool] = True
    scale_free: ClassVar[bool] = True
    family: ClassVar[Family] = "fp32"

    @property
    @override
    def scale_mode(self) -> str:
        return "none"

    @override
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        self.check_input(x, role, amax)
        return Quantized(codes=x)

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        return q.codes

    @override
    def fake(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Tensor:
        return x.detach()


@dataclass(frozen=True, slots=True, kw_only=True)
class BFloat16(NumberFormat):
    """Rounded to nearest, ties to even; keeps NaN and the infinities, as a cast does."""

    scale_free: ClassVar[bool] = True
    family: ClassVar[Family] = "bf16"

    @property
    @override
    def scale_mode(self) -> str:
        return "none"

    @override
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        self.check_input(x, role, amax)
        return Quantized(codes=x.to(torch.bfloat16))

    @override
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        return q.codes.to(torch.float32)

    @override
    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role, amax: int | None) -> None:
        library.bf16(x.data_ptr(), out.data_ptr(), x.numel())
