"""The converted layers of a model, and what may change of them while it runs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import nn

from trimtab.hooks.controls import Backward
from trimtab.trainer.quant import native
from trimtab.trainer.quant.anatomy import decoder_layers
from trimtab.trainer.quant.formats import FORMATS, format_named
from trimtab.trainer.quant.linear import QuantLayer
from trimtab.trainer.quant.native import Execution

ROUNDING = 1e-9
"""What a share of the layers may be above a whole number by the rounding of its digits."""


def quant_layers(model: nn.Module) -> Iterator[tuple[str, QuantLayer]]:
    """Converted layers by name, in the model's order."""
    for name, module in model.named_modules():
        if isinstance(module, QuantLayer):
            yield name, module


def required_layers(model: nn.Module) -> dict[str, QuantLayer]:
    """The same; ValueError if there is none."""
    layers = dict(quant_layers(model))
    if not layers:
        raise ValueError("model: has no quantised layers; convert it first")
    return layers


def set_format(model: nn.Module, format_name: str, *, bf16_last: float = 0.0) -> None:
    """Change the format of every converted layer that was not kept, from the next forward pass on; those in the last
    `bf16_last` of the decoder layers, rounded up, compute in BF16.

    Raises:
        ValueError: an unknown format, a model without converted layers, or a layer that does not divide into the
            format's blocks; the model is then unchanged.
    """
    fmt = format_named(format_name, field="format_name")
    layers = _not_kept(model)
    for name, layer in layers.items():
        for parameter, shape in layer.matrices().items():
            fmt.check_shape(f"{name}.{parameter}", shape)
    blocks = decoder_layers(model) if bf16_last else []
    exact = tuple(f"{block}." for block in blocks[len(blocks) - math.ceil(bf16_last * len(blocks) - ROUNDING) :])
    for name, layer in layers.items():
        layer.format = FORMATS["bf16"] if name.startswith(exact) else fmt


def set_backward(model: nn.Module, backward: Backward) -> None:
    """Change what the backward pass of every converted layer, kept ones included, multiplies by.

    Raises:
        ValueError: an unknown mode, or a model without converted layers; the model is then unchanged.
    """
    for layer in required_layers(model).values():
        layer.backward_mode = backward


def set_execution(model: nn.Module, execution: Execution) -> None:
    """Change how every converted layer that was not kept multiplies: see `native`.

    Kept layers go on choosing by themselves: the formats they are kept in have no kernel to insist on.

    Raises:
        ValueError: an unknown execution, or a model without converted layers; the model is then unchanged.
    """
    for layer in _not_kept(model).values():
        layer.execution = execution


def engine_of(model: nn.Module) -> str:
    """What the converted layers that were not kept compute with, such as `fp8-native` or `nvfp4-emulated`; where they
    differ, as layers do whose shapes no kernel takes, joined by `+`.

    Raises:
        ValueError: a model without converted layers, or a layer that must run natively and cannot.
    """
    engines = set()
    for name, layer in _not_kept(model).items():
        try:
            engines.add(layer.engine)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return "+".join(sorted(engines))


def fitting_formats(model: nn.Module) -> tuple[str, ...]:
    """The formats that `set_format` would accept for `model` and that its layers, executed as they are, could then
    compute in; none if it has no converted layers."""
    used = {
        (layer.execution, next(layer.parameters()).device, shape)
        for _, layer in quant_layers(model)
        if not layer.kept
        for shape in layer.matrices().values()
    }

    def fits(name: str) -> bool:
        try:
            for execution, device, shape in used:
                FORMATS[name].check_shape("weight", shape)
                native.runs(execution, FORMATS[name], device, shape)
        except ValueError:
            return False
        return bool(used)

    return tuple(name for name in FORMATS if fits(name))


def quantised_formats(model: nn.Module) -> dict[str, str]:
    """Format by name of each converted layer, kept ones included."""
    return {name: layer.format.name for name, layer in quant_layers(model)}


def freeze(model: nn.Module) -> None:
    """`QuantLayer.freeze` on every converted layer: quantise the weights once, as a sampler does after it receives
    them."""
    for _, layer in quant_layers(model):
        layer.freeze()


def _not_kept(model: nn.Module) -> dict[str, QuantLayer]:
    """At least one: `convert` refuses to keep them all."""
    return {name: layer for name, layer in required_layers(model).items() if not layer.kept}
