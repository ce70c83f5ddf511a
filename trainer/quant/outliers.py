"""Give a small model the activation outliers of a large one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from trimtab.trainer.quant.convert import matching
from trimtab.trainer.quant.layers import quant_layers


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
