"""Choosing, joining and moving the rows of dataclasses of tensors. Fields that are no tensors stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def chosen(batch: T, index: Tensor) -> T:
    """The rows at `index`, a [n] tensor of row numbers."""
    return replace(batch, **{name: tensor[index] for name, tensor in _tensors(batch).items()})


def joined(batches: Sequence[T]) -> T:
    """All rows of `batches`, in order; each has the same tensors."""
    columns = {name: torch.cat([getattr(batch, name) for batch in batches]) for name in _tensors(batches[0])}
    return replace(batches[0], **columns)


def moved(batch: T, device: torch.device | str) -> T:
    """The same on `device`."""
    return replace(batch, **{name: tensor.to(device) for name, tensor in _tensors(batch).items()})


def _tensors(batch: DataclassInstance) -> dict[str, Tensor]:
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
