"""What a converted model says of its weights, for comparison with what a sampler says of them."""

from __future__ import annotations

from torch import nn

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.quant.convert import quant_layers
from trimtab.trainer.quant.linear import QuantLayer

HIGH_PRECISION = ("fp32", "bf16")
"""Families of formats in which a tensor does not count as quantised."""


def manifest(model: nn.Module) -> dict[str, TensorContract]:
    """The contract of every weight that `model`, once converted, multiplies by, kept ones included, by Parameter name.

    `scale_mode` names the layers that share the scale of a weight, this one included: see `merged`. Embeddings, norms,
    biases and routers that are no `nn.Linear` have no format and are not listed.

    Raises:
        ValueError: a model without converted layers.
    """
    found = {
        f"{name}.{parameter}": TensorContract(
            format=layer.format.name,
            scale_mode=_scale_mode(layer),
            tie_rule=layer.format.tie_rule,
            quantised=layer.format.family not in HIGH_PRECISION,
        )
        for name, layer in quant_layers(model)
        for parameter in layer.matrices()
    }
    if not found:
        raise ValueError("model: has no quantised layers; convert it first")
    return found


def _scale_mode(layer: QuantLayer) -> str:
    sharing = layer.sharing
    return layer.format.scale_mode + (f" shared by {', '.join(sharing)}" if sharing else "")
