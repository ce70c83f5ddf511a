"""Put number formats into any model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from trimtab.trainer.quant.anatomy import decoder_layers, places
from trimtab.trainer.quant.experts import QuantExperts, has_fused_experts
from trimtab.trainer.quant.formats import format_named
from trimtab.trainer.quant.linear import QuantLayer, QuantLinear
from trimtab.trainer.quant.merged import link_merged
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


def matching(names: Sequence[str], patterns: Sequence[str], *, field: str) -> list[str]:
    """Those of `names`, in order, that a pattern matches; ValueError naming `field` if a pattern matches none."""
    if isinstance(patterns, str):
        raise ValueError(f"{field}: {patterns!r} is one string; give a sequence of names or globs")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            kinds = dict.fromkeys(_INDEX.sub("*", name) for name in names)
            raise ValueError(f"{field}: {pattern!r} matches no layer; the layers are {', '.join(kinds)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


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
            (place.head and recipe.keep_head)
            or place.router
            or (place.attention and recipe.keep_attention)
            or (place.shared_expert and recipe.keep_shared_experts)
            or (recipe.moe_only and not (place.expert or place.shared_expert))
            or (place.depth is not None and place.depth >= first_kept)
        ):
            kept.add(name)
    if len(kept) == len(names):
        raise ValueError(
            f"recipe: {recipe.name!r} keeps every layer of the model and quantises none; keep fewer (routers "
            "are kept always, a head unless keep_head is false, and layers that are no nn.Linear, such as GPT-2's "
            "Conv1D, are never quantised)"
        )
    return kept
