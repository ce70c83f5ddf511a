"""Every number format by name: a new one is one file and one line here."""

from __future__ import annotations

from trimtab.trainer.quant.format import NumberFormat
from trimtab.trainer.quant.fp8 import Fp8Block, Fp8Row, Fp8Tensor
from trimtab.trainer.quant.mxfp8 import MxFp8
from trimtab.trainer.quant.nvfp4 import NvFp4
from trimtab.trainer.quant.nvfp4_pretrain import NvFp4Pretrain
from trimtab.trainer.quant.plain import BFloat16, Float32

FORMATS: dict[str, NumberFormat] = {
    "fp32": Float32(name="fp32"),
    "bf16": BFloat16(name="bf16"),
    "fp8-tensor": Fp8Tensor(name="fp8-tensor"),
    "fp8-tensor-hybrid": Fp8Tensor(name="fp8-tensor-hybrid", gradients="e5m2"),
    "fp8-tensor-mixed": Fp8Tensor(name="fp8-tensor-mixed", activations="e5m2", gradients="e5m2"),
    "fp8-tensor-e5m2": Fp8Tensor(name="fp8-tensor-e5m2", weights="e5m2", activations="e5m2", gradients="e5m2"),
    "fp8-tensor-acc14": Fp8Tensor(name="fp8-tensor-acc14", accumulation="14 bits"),
    "fp8-row": Fp8Row(name="fp8-row"),
    "fp8-row-mixed": Fp8Row(name="fp8-row-mixed", activations="e5m2", gradients="e5m2"),
    "fp8-row-e5m2": Fp8Row(name="fp8-row-e5m2", weights="e5m2", activations="e5m2", gradients="e5m2"),
    "fp8-row-acc14": Fp8Row(name="fp8-row-acc14", accumulation="14 bits"),
    "fp8-block": Fp8Block(name="fp8-block", size=128),
    "fp8-block-32": Fp8Block(name="fp8-block-32", size=32),
    "mxfp8": MxFp8(name="mxfp8"),
    "mxfp8-rceil": MxFp8(name="mxfp8-rceil", rule="rceil"),
    "nvfp4": NvFp4(name="nvfp4"),
    "nvfp4-46": NvFp4(name="nvfp4-46", four_over_six="mse"),
    "nvfp4-46-mae": NvFp4(name="nvfp4-46-mae", four_over_six="mae"),
    "nvfp4-pretrain": NvFp4Pretrain(name="nvfp4-pretrain"),
}


def format_named(name: str, *, field: str = "format") -> NumberFormat:
    """The format called `name`.

    Raises:
        ValueError: there is none; the message names `field` and lists the formats.
    """
    if name not in FORMATS:
        raise ValueError(f"{field}: {name!r} is none of {', '.join(FORMATS)}")
    return FORMATS[name]
