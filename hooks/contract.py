"""The configuration contract of a trainer and its sampler: which tensors are quantised, and how, on both sides.

Two engines that disagree here compute with two different policies, and no metric says where: a layer that only one of
them quantises looks like noise spread over the whole model. So compare what each side says of every weight before the
first step. Names must be the checkpoint's own on both sides; an engine that merges tensors (`gate_up_proj`) reports
each part under its checkpoint name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MISSING = "missing"
"""Stands for the format of a tensor that one side does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorContract:
    """How one side computes with one tensor.

    >>> TensorContract(format="nvfp4-46", scale_mode="e4m3 / 16", tie_rule="mse, ties to 6", quantised=True).format
    'nvfp4-46'
    """

    format: str
    """The number format by name: `bf16`, `fp8-block`, ..."""
    scale_mode: str
    """Type and reach of the scales."""
    tie_rule: str
    """How the format chooses between two encodings of equal error; `none` where it never has to."""
    quantised: bool
    """False for a tensor that was kept in high precision."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Difference:
    """One tensor that the two sides treat differently."""

    tensor: str
    field: str
    """The field of `TensorContract` that differs."""
    trainer: str
    """The trainer's value; `missing` if the trainer does not have the tensor."""
    sampler: str
    """The sampler's value; `missing` if the sampler does not have the tensor."""


def contract_differences(
    trainer: Mapping[str, TensorContract], sampler: Mapping[str, TensorContract]
) -> tuple[Difference, ...]:
    """Every difference between the two contracts, by tensor name, sorted; empty if the sides agree.

    Where the formats differ, or a tensor is missing on one side, that is the one difference reported of this tensor:
    its scales and its tie rule follow from it.
    """
    differences = []
    for tensor in trainer.keys() | sampler.keys():
        ours, theirs = trainer.get(tensor), sampler.get(tensor)
        if ours is None or theirs is None or ours.format != theirs.format:
            formats = [MISSING if side is None else side.format for side in (ours, theirs)]
            differences.append(Difference(tensor=tensor, field="format", trainer=formats[0], sampler=formats[1]))
            continue
        for field in ("scale_mode", "tie_rule", "quantised"):
            values = [str(getattr(side, field)) for side in (ours, theirs)]
            if values[0] != values[1]:
                differences.append(Difference(tensor=tensor, field=field, trainer=values[0], sampler=values[1]))
    return tuple(sorted(differences))


def report(differences: tuple[Difference, ...]) -> str:
    """One paragraph for a person: a sentence for each kind of difference, with the name of every tensor.

    >>> report((Difference(tensor="head.weight", field="format", trainer="mxfp8", sampler="bf16"),))
    '1 tensor is MXFP8 in the trainer but BF16 in the sampler: head.weight.'
    """
    if not differences:
        return "The trainer and the sampler agree on every tensor."
    kinds: dict[tuple[str, str, str], list[str]] = {}
    for difference in differences:
        kind = (difference.field, difference.trainer, difference.sampler)
        kinds.setdefault(kind, []).append(difference.tensor)
    return " ".join(_sentence(*kind, tensors) for kind, tensors in kinds.items())


def _sentence(field: str, trainer: str, sampler: str, tensors: list[str]) -> str:
    if field == "format":
        ours, theirs = (side if side == MISSING else side.upper() for side in (trainer, sampler))
        says = ("is " if len(tensors) == 1 else "are ") + f"{ours} in the trainer but {theirs} in the sampler"
    else:
        has = "has" if len(tensors) == 1 else "have"
        says = f"{has} {field} {trainer!r} in the trainer but {sampler!r} in the sampler"
    return f"{len(tensors)} {'tensor' if len(tensors) == 1 else 'tensors'} {says}: {', '.join(tensors)}."
