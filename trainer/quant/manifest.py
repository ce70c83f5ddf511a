"""What a converted model says of its weights, for comparison with what a sampler says of them."""

from __future__ import annotations

from torch import nn

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.quant.layers import required_layers
from trimtab.trainer.quant.linear import QuantLayer


def manifest(model: nn.Module) -> dict[str, TensorContract]:
    """The contract of every weight that `model`, once converted, multiplies by, kept ones included, by Parameter name.

    `scale_mode` names the layers that share the scale of a weight, this one included: see `merged`. Embeddings, norms,
    biases and routers that are no `nn.Linear` have no format and are not listed.

    Raises:
        ValueError: a model without converted layers.
    """
    return {
        f"{name}.{parameter}": TensorContract(
            format=layer.format.name,
            scale_mode=_scale_mode(layer),
            tie_rule=layer.format.tie_rule,
            quantised=not layer.format.scale_free,
        )
        for name, layer in required_layers(model).items()
        for parameter in layer.matrices()
    }


def _scale_mode(layer: QuantLayer) -> str:
    sharing = layer.sharing
    return layer.format.scale_mode + (f" shared by {', '.join(sharing)}" if sharing else "")
