"""Put number formats into any model, change them while it runs, and give a small model the outliers of a large one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import torch
from torch import nn

from trimtab.trainer.quant.formats import FORMATS, format_named
from trimtab.trainer.quant.linear import Backward, QuantLinear


def convert(
    model: nn.Module,
    format_name: str,
    *,
    backward: Backward = "dequantized",
    keep: Sequence[str] = (),
    keep_format: str = "bf16",
) -> list[str]:
    """Swap every `nn.Linear` in `model`, in place, for a `QuantLinear` with the same Parameters; return their names.

    `keep` holds names or globs (`lm_head`, `layers.11.*`) of layers that compute in `keep_format`, now and after
    `set_format`. Subclasses of `nn.Linear` are left alone, since those in torch are read directly by the module around
    them.

    Raises:
        ValueError: an unknown format or backward mode, a keep pattern that matches nothing, a model without linear
        layers, or a
            layer that does not divide into the format's blocks; the model is then unchanged.
    """
    fmt = format_named(format_name, field="format_name")
    kept_fmt = format_named(keep_format, field="keep_format")
    linears = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    if not linears:
        raise ValueError("model: no nn.Linear below it to convert; use set_format on a model that is converted already")
    if "" in linears:
        raise ValueError(
            "model: is itself an nn.Linear, which cannot be swapped in place; wrap it, or build a QuantLinear"
        )
    kept = set(matching(list(linears), keep, field="keep"))
    for name, linear in linears.items():
        (kept_fmt if name in kept else fmt).check_shape(f"{name}.weight", linear.weight.shape)
    swapped = {
        id(linear): QuantLinear(linear, kept_fmt if name in kept else fmt, backward=backward, kept=name in kept)
        for name, linear in linears.items()
    }
    for parent in list(model.modules()):
        for child_name, child in list(parent._modules.items()):
            if id(child) in swapped:
                setattr(parent, child_name, swapped[id(child)])
    return list(linears)


def set_format(model: nn.Module, format_name: str) -> None:
    """Change the format of every converted layer that was not kept, from the next forward pass on.

    Raises:
        ValueError: an unknown format, a model without converted layers, or a layer that does not divide into the
        format's blocks;
            the model is then unchanged.
    """
    fmt = format_named(format_name, field="format_name")
    layers = {name: layer for name, layer in quant_linears(model) if not layer.kept}
    if not layers:
        raise ValueError("model: has no quantised linear layers; convert it first")
    for name, layer in layers.items():
        fmt.check_shape(f"{name}.weight", layer.weight.shape)
    for layer in layers.values():
        layer.format = fmt


def fitting_formats(model: nn.Module) -> tuple[str, ...]:
    """The formats that `set_format` would accept for `model`; none if it has no converted layers."""
    shapes = {layer.weight.shape for _, layer in quant_linears(model) if not layer.kept}

    def fits(name: str) -> bool:
        try:
            for shape in shapes:
                FORMATS[name].check_shape("weight", shape)
        except ValueError:
            return False
        return bool(shapes)

    return tuple(name for name in FORMATS if fits(name))


def quantised_formats(model: nn.Module) -> dict[str, str]:
    """Format by name of each converted layer, kept ones included."""
    return {name: layer.format.name for name, layer in quant_linears(model)}


def freeze(model: nn.Module) -> None:
    """`QuantLinear.freeze` on every converted layer: quantise the weights once, as a sampler does after it receives
    them."""
    for _, layer in quant_linears(model):
        layer.freeze()


def thaw(model: nn.Module) -> None:
    """Undo `freeze`."""
    for _, layer in quant_linears(model):
        layer.thaw()


def outlier_scales(
    model: nn.Module, layers: Sequence[str], channels: int, scale: float, seed: int
) -> dict[str, list[int]]:
    """Let `channels` input channels of each layer named by `layers` (names or globs) reach the quantiser `scale` times
    as large.

    Activation outliers as in real language models, function-preserving: see `QuantLinear`. The channels are drawn at
    random, for one layer after the other in the model's order, from `seed` alone. Returns them, sorted, by layer name.

    Raises:
        ValueError: a pattern that matches no converted layer, more channels than a layer has, or a scale that is not a
        power of
            two.
    """
    found = dict(quant_linears(model))
    generator = torch.Generator().manual_seed(seed)
    names = matching(list(found), layers, field="layers")
    for name in names:
        layer = found[name]
        if not 1 <= channels <= layer.in_features:
            raise ValueError(f"channels: {channels} is not in [1, {layer.in_features}], the input channels of {name}")
    chosen: dict[str, list[int]] = {}
    for name in names:
        layer = found[name]
        picked = torch.randperm(layer.in_features, generator=generator)[:channels]
        factors = torch.ones(layer.in_features)
        factors[picked] = scale
        layer.set_input_scale(factors)
        chosen[name] = sorted(picked.tolist())
    return chosen


def quant_linears(model: nn.Module) -> Iterator[tuple[str, QuantLinear]]:
    """Converted layers by name, in the model's order."""
    for name, module in model.named_modules():
        if isinstance(module, QuantLinear):
            yield name, module


def matching(names: Sequence[str], patterns: Sequence[str], *, field: str) -> list[str]:
    """Those of `names`, in order, that a pattern matches; ValueError naming `field` if a pattern matches none."""
    if isinstance(patterns, str):
        raise ValueError(f"{field}: {patterns!r} is one string; give a sequence of names or globs")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"{field}: {pattern!r} matches no linear layer; the layers are {', '.join(names)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
