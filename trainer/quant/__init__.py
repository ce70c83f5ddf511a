"""Low-precision number formats, and linear layers that compute in them.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
>>> convert(model, Recipe(name="mine", format="nvfp4", keep=("2",)))
['0', '2']
>>> quantised_formats(model)
{'0': 'nvfp4', '2': 'bf16'}
"""

from __future__ import annotations

from trimtab.trainer.quant.convert import convert
from trimtab.trainer.quant.experts import QuantExperts
from trimtab.trainer.quant.format import NumberFormat, Quantized, Role
from trimtab.trainer.quant.formats import FORMATS, format_named
from trimtab.trainer.quant.layers import (
    engine_of,
    fitting_formats,
    freeze,
    quantised_formats,
    set_backward,
    set_execution,
    set_format,
)
from trimtab.trainer.quant.linear import QuantLayer, QuantLinear
from trimtab.trainer.quant.manifest import manifest
from trimtab.trainer.quant.native import Execution
from trimtab.trainer.quant.outliers import outlier_scales
from trimtab.trainer.quant.recipe import Recipe
from trimtab.trainer.quant.recipes import RECIPES, recipe_named

__all__ = [
    "FORMATS",
    "RECIPES",
    "Execution",
    "NumberFormat",
    "QuantExperts",
    "QuantLayer",
    "QuantLinear",
    "Quantized",
    "Recipe",
    "Role",
    "convert",
    "engine_of",
    "fitting_formats",
    "format_named",
    "freeze",
    "manifest",
    "outlier_scales",
    "quantised_formats",
    "recipe_named",
    "set_backward",
    "set_execution",
    "set_format",
]
