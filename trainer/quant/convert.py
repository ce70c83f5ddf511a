"""Put number formats into any model, change them while it runs, and give a small model the outliers of a large one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import get_args

import torch
from torch import nn

from trimtab.trainer.quant import native
from trimtab.trainer.quant.anatomy import decoder_layers, places
from trimtab.trainer.quant.experts import QuantExperts, has_fused_experts
from trimtab.trainer.quant.formats import FORMATS, format_named
from trimtab.trainer.quant.linear import QuantLayer, QuantLinear
from trimtab.trainer.quant.matmul import Backward
from trimtab.trainer.quant.merged import link_merged
from trimtab.trainer.quant.native import Execution
from trimtab.trainer.quant.recipe import Recipe

_INDEX = re.compile(r"\b\d+(?=\.)")
"""The number of a layer in a name: left out where all names are listed."""


def convert(model: nn.Module, recipe: Recipe) -> list[str]:
    """Swap every `nn.Linear` and every fused-experts module in `model`, in place, for a layer with the same Parameters
    that computes in the format of `recipe`, or in its `keep_format` where the layer is kept, now and after
    `set_format`; return their names.

    Layers that serving engines merge share the scale of a weight: see `merged`.

    Subclasses of `nn.Linear` are left alone, since those in torch are read directly by the module around them, and so
    are routers that are no `nn.Linear`: both compute as they did.

    Raises:
        ValueError: a `keep` pattern that matches nothing, `keep_last` without decoder layers, `moe_only` without
            experts, nothing left to quantise, fused experts of another layout, a model without linear layers, or a
            layer that does not divide into the format's blocks. The message names the field or the layer; the model is
            then unchanged.
    """
    found = _convertible(model)
    kept = _kept_layers(model, list(found), recipe)
    fmt, kept_fmt = format_named(recipe.format), format_named(recipe.keep_format, field="keep_format")
    swapped: dict[int, QuantLayer] = {}
    for name, module in found.items():
        layer_class = QuantLinear if isinstance(module, nn.Linear) else QuantExperts
        layer_fmt = kept_fmt if name in kept else fmt
        try:
            layer = layer_class(module, layer_fmt, backward=recipe.backward, kept=name in kept)  # type: ignore[arg-type]
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        for parameter, shape in layer.matrices().items():
            layer_fmt.check_shape(f"{name}.{parameter}", shape)
        swapped[id(module)] = layer
    for parent in list(model.modules()):
        for child_name, child in list(parent._modules.items()):
            if id(child) in swapped:
                setattr(parent, child_name, swapped[id(child)])
    link_merged(model)
    return list(found)


def set_format(model: nn.Module, format_name: str) -> None:
    """Change the format of every converted layer that was not kept, from the next forward pass on.

    Raises:
        ValueError: an unknown format, a model without converted layers, or a layer that does not divide into the
            format's blocks; the model is then unchanged.
    """
    fmt = format_named(format_name, field="format_name")
    layers = _not_kept(model)
    for name, layer in layers.items():
        for parameter, shape in layer.matrices().items():
            fmt.check_shape(f"{name}.{parameter}", shape)
    for layer in layers.values():
        layer.format = fmt


def set_backward(model: nn.Module, backward: Backward) -> None:
    """Change what the backward pass of every converted layer, kept ones included, multiplies by.

    Raises:
        ValueError: an unknown mode, or a model without converted layers; the model is then unchanged.
    """
    if backward not in get_args(Backward):
        raise ValueError(f"backward: {backward!r} is none of {', '.join(get_args(Backward))}")
    layers = dict(quant_layers(model))
    if not layers:
        raise ValueError("model: has no quantised layers; convert it first")
    for layer in layers.values():
        layer.backward_mode = backward


def set_execution(model: nn.Module, execution: Execution) -> None:
    """Change how every converted layer that was not kept multiplies: see `native`.

    Kept layers go on choosing by themselves: the formats they are kept in have no kernel to insist on.

    Raises:
        ValueError: an unknown execution, or a model without converted layers; the model is then unchanged.
    """
    if execution not in get_args(Execution):
        raise ValueError(f"execution: {execution!r} is none of {', '.join(get_args(Execution))}")
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


def thaw(model: nn.Module) -> None:
    """Undo `freeze`."""
    for _, layer in quant_layers(model):
        layer.thaw()


def outlier_scales(
    model: nn.Module, layers: Sequence[str], channels: int, scale: float, seed: int
) -> dict[str, list[int]]:
    """Let `channels` input channels of each layer named by `layers` (names or globs) reach the quantiser `scale` times
    as large.

    Activation outliers as in real language models, function-preserving: see `QuantLayer`. The channels are drawn at
    random, for one layer after the other in the model's order, from `seed` alone. Returns them, sorted, by layer name.

    Raises:
        ValueError: a pattern that matches no converted layer, more channels than a layer has, or a scale that is not a
            power of two.
    """
    found = dict(quant_layers(model))
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


def quant_layers(model: nn.Module) -> Iterator[tuple[str, QuantLayer]]:
    """Converted layers by name, in the model's order."""
    for name, module in model.named_modules():
        if isinstance(module, QuantLayer):
            yield name, module


def matching(names: Sequence[str], patterns: Sequence[str], *, field: str) -> list[str]:
    """Those of `names`, in order, that a pattern matches; ValueError naming `field` if a pattern matches none."""
    if isinstance(patterns, str):
        raise ValueError(f"{field}: {patterns!r} is one string; give a sequence of names or globs")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            kinds = dict.fromkeys(_INDEX.sub("*", name) for name in names)
            raise ValueError(f"{field}: {pattern!r} matches no layer; the layers are {', '.join(kinds)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _not_kept(model: nn.Module) -> dict[str, QuantLayer]:
    layers = {name: layer for name, layer in quant_layers(model) if not layer.kept}
    if not layers:
        raise ValueError("model: has no quantised layers; convert it first")
    return layers


def _convertible(model: nn.Module) -> dict[str, nn.Module]:
    """What `convert` swaps, by name, in the model's order."""
    if any(isinstance(module, QuantLayer) for module in model.modules()):
        raise ValueError("model: is converted already; use set_format and set_backward on it")
    found = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear or has_fused_experts(name, module)
    }
    if not found:
        raise ValueError("model: no nn.Linear and no fused experts below it to convert")
    if "" in found:
        raise ValueError(f"model: is itself the layer ({type(model).__name__}), which cannot be swapped; wrap it")
    return found


def _kept_layers(model: nn.Module, names: list[str], recipe: Recipe) -> set[str]:
    """The layers among `names` that `recipe` keeps in its `keep_format`."""
    where = places(model, names)
    layers = len(decoder_layers(model))
    if recipe.keep_last and not layers:
        raise ValueError(f"keep_last: {recipe.keep_last} of no decoder layers; the model has no nn.ModuleList of them")
    if recipe.moe_only and not any(place.expert or place.shared_expert for place in where.values()):
        raise ValueError("moe_only: the model has no experts; use a recipe without it")
    first_kept = layers - recipe.last_layers(layers)
    kept = set(matching(names, recipe.keep, field="keep"))
    for name, place in where.items():
        if (
            place.head
            or place.router
            or (place.attention and recipe.keep_attention)
            or (place.shared_expert and recipe.keep_shared_experts)
            or (recipe.moe_only and not (place.expert or place.shared_expert))
            or (place.depth is not None and place.depth >= first_kept)
        ):
            kept.add(name)
    if len(kept) == len(names):
        raise ValueError(f"recipe: {recipe.name!r} keeps every layer of the model and quantises none")
    return kept
