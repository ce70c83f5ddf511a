"""What a run quantises and what it keeps, as one value that trainer and sampler share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

from trimtab.hooks.controls import Backward
from trimtab.trainer.quant.formats import format_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Format, backward mode and kept layers of a model.

    Whatever the recipe says, embeddings and norms are not touched, and the routers of a mixture of experts are kept; so
    is the head unless the recipe says otherwise: no published one quantises it. Kept layers compute in `keep_format`.

    Raises:
        ValueError: an unknown format or backward mode, or a fraction outside [0, 1]; the message names the field.

    >>> Recipe(name="mine", format="fp8-row", keep=("*.down_proj",), keep_last=0.15).last_layers(48)
    7
    """

    name: str
    format: str
    """Key in `FORMATS`, of every layer that is not kept."""
    backward: Backward = "dequantized"
    """What the backward pass multiplies by; see `matmul`."""
    keep: tuple[str, ...] = ()
    """Names or globs of layers to keep (`model.layers.0.*`), compared with the whole name; each must match one."""
    keep_format: str = "bf16"
    """Key in `FORMATS`, of every layer that is kept."""
    keep_head: bool = True
    """Keep the layer that writes the logits."""
    keep_attention: bool = False
    """Keep every linear layer of an attention module."""
    moe_only: bool = False
    """Quantise the experts of a mixture of experts and keep everything else."""
    keep_shared_experts: bool = False
    """Keep the experts that every token passes through."""
    keep_last: float = 0.0
    """Fraction of the decoder layers to keep, from the end; see `last_layers`."""

    def __post_init__(self) -> None:
        format_named(self.format)
        format_named(self.keep_format, field="keep_format")
        if self.backward not in get_args(Backward):
            raise ValueError(f"backward: {self.backward!r} is none of {', '.join(get_args(Backward))}")
        if not 0.0 <= self.keep_last <= 1.0:
            raise ValueError(f"keep_last: {self.keep_last} is not in [0, 1]; give a fraction of the decoder layers")

    def last_layers(self, layers: int) -> int:
        """How many of `layers` decoder layers `keep_last` keeps: to the nearest, halves up, and one at the least unless
        it is 0."""
        if self.keep_last == 0.0:
            return 0
        return max(1, math.floor(self.keep_last * layers + 0.5))
