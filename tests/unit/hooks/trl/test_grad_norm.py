"""The gradient's norm is read where it can be had without waiting."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch

from trimtab.hooks.trl.grad_norm import GradNorm


class OnDevice:
    """A tensor of a device, which says when it was read."""

    device = SimpleNamespace(type="cuda")

    def __init__(self, value: float) -> None:
        self.value, self.read = value, 0

    def detach(self) -> Any:
        return self

    def __float__(self) -> float:
        self.read += 1
        return self.value


def test_a_number_and_a_tensor_of_the_host_are_told_at_once() -> None:
    norm = GradNorm()
    for value in (0.5, torch.tensor(0.5)):
        norm.heard(value)
        assert norm.taken() == 0.5
    norm.heard(torch.tensor(math.nan))
    assert math.isnan(norm.taken() or 0.0)
    norm.heard(None)
    assert norm.taken() is None


def test_one_on_a_device_is_not_read_until_the_device_was_waited_for() -> None:
    norm, value = GradNorm(), OnDevice(0.25)
    norm.heard(value)
    assert (norm.taken(), value.read) == (None, 0)
    norm.settle()
    assert (norm.taken(), value.read) == (0.25, 1)
    norm.settle()
    assert norm.taken() is None
