"""Matmuls in FP8 itself, where the machine has a kernel: codes and float32 scales in, float32 out.

`torch._scaled_mm` multiplies E4M3 codes. On NVIDIA GPUs from compute capability 8.9 on it runs on FP8 tensor cores,
which add up with fewer bits than float32. On a CPU torch has a reference loop, thousands of times slower than float32:
it serves to compare, and nothing takes it of its own accord.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from trimtab.trainer.quant.format import NumberFormat, Quantized
from trimtab.trainer.quant.fp8 import Fp8Row, Fp8Tensor

Execution = Literal["auto", "native", "emulated"]
"""`auto` is native where that is faster, and emulated elsewhere."""
FIRST_CAPABILITY = (8, 9)
MULTIPLE = 16
"""The kernels take sizes [N, K] of whole 16s."""


def refusal(fmt: NumberFormat, device: torch.device, shape: torch.Size) -> str | None:
    """Why a weight of `shape` [N, K] cannot be multiplied natively in `fmt` on `device`; None if it can."""
    if not _multiplies_e4m3(fmt):
        return f"format {fmt.name} has no native kernel here; fp8-tensor, fp8-tensor-hybrid and fp8-row have"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < FIRST_CAPABILITY:
        return f"{device} has compute capability below 8.9, and so no FP8"
    if device.type not in ("cuda", "cpu"):
        return f"{device} has no kernel; CUDA and CPU have"
    if any(size % MULTIPLE for size in shape):
        return f"shape {list(shape)} is not of whole {MULTIPLE}s"
    return None


def runs(execution: Execution, fmt: NumberFormat, device: torch.device, shape: torch.Size) -> bool:
    """Whether a weight of `shape` [N, K] is multiplied natively; never in float32 or BF16, which any run may switch to.

    Raises:
        ValueError: `execution` is native, and that cannot be.
    """
    if execution == "emulated" or fmt.scale_free or (execution == "auto" and device.type == "cpu"):
        return False
    reason = refusal(fmt, device, shape)
    if reason is not None and execution == "native":
        raise ValueError(f"execution: 'native' is refused: {reason}; choose auto or emulated")
    return reason is None


def _multiplies_e4m3(fmt: NumberFormat) -> bool:
    """Whether the forward pass is in E4M3 with one scale or one a row, and adds up in float32."""
    if not isinstance(fmt, Fp8Tensor | Fp8Row) or fmt.short_accumulator:
        return False
    return fmt.weights == fmt.activations == "e4m3"


def multiply(x: Quantized, weight: Quantized) -> Tensor:
    """[..., K] by [N, K] to [..., N] float32, for two operands of `fp8-tensor` or of `fp8-row`."""
    assert x.scale is not None
    assert weight.scale is not None
    codes = x.codes.reshape(-1, x.codes.shape[-1])
    one = torch.ones((), device=codes.device)
    # Scales come after: with one a row, CUDA has kernels with bfloat16 output only.
    y = torch._scaled_mm(codes, weight.codes.t(), one, one, out_dtype=torch.float32, use_fast_accum=False)
    return y.reshape(*x.codes.shape[:-1], -1) * x.scale * weight.scale.reshape(-1)
