"""Low-precision number formats, and linear layers that compute in them.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
>>> convert(model, "nvfp4", keep=("2",))
['0', '2']
>>> quantised_formats(model)
{'0': 'nvfp4', '2': 'bf16'}
"""

from __future__ import annotations

from trimtab.trainer.quant.convert import (
    convert,
    fitting_formats,
    freeze,
    outlier_scales,
    quantised_formats,
    set_format,
    thaw,
)
from trimtab.trainer.quant.format import NumberFormat, Quantized, Role
from trimtab.trainer.quant.formats import FORMATS, format_named
from trimtab.trainer.quant.linear import Backward, QuantLinear

__all__ = [
    "FORMATS",
    "Backward",
    "NumberFormat",
    "QuantLinear",
    "Quantized",
    "Role",
    "convert",
    "fitting_formats",
    "format_named",
    "freeze",
    "outlier_scales",
    "quantised_formats",
    "set_format",
    "thaw",
]
