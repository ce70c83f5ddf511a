"""What a converted model says of its weights, for comparison with what a sampler says of them."""

from __future__ import annotations

from torch import nn

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.quant.convert import quant_layers

HIGH_PRECISION = ("fp32", "bf16")
"""Families of formats in which a tensor does not count as quantised."""


def manifest(model: nn.Module) -> dict[str, TensorContract]:
    """The contract of every weight that `model`, once converted, multiplies by, kept ones included, by Parameter name.

    Embeddings, norms, biases and routers that are no `nn.Linear` have no format and are not listed.

    Raises:
        ValueError: a model without converted layers.
    """
    found = {
        f"{name}.{parameter}": TensorContract(
            format=layer.format.name,
            scale_mode=layer.format.scale_mode,
            tie_rule=layer.format.tie_rule,
            quantised=layer.format.family not in HIGH_PRECISION,
        )
        for name, layer in quant_layers(model)
        for parameter in layer.matrices()
    }
    if not found:
        raise ValueError("model: has no quantised layers; convert it first")
    return found
