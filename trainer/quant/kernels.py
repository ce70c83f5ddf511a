"""Compiled versions of the formats, bit-equal to the torch code; without them everything still works, slower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The compiled functions. Each takes the addresses of contiguous float32 input and output, and then its sizes."""

    bf16: Callable[[int, int, int], None]
    """count"""
    fp8_groups: Callable[[int, int, int, int], None]
    """groups, values in each"""
    fp8_tiles: Callable[[int, int, int, int, int], None]
    """rows, columns, side of a tile"""
    mxfp8: Callable[[int, int, int], None]
    """blocks of 32"""
    nvfp4: Callable[[int, int, int, int], None]
    """groups that share a global scale, values in each"""
    nvfp4_46: Callable[[int, int, int, int], None]
    """groups that share a global scale, values in each"""


def library() -> Library | None:
    """The compiled functions, or None where there are none."""
    return None


def backend() -> Literal["native", "torch"]:
    """What `NumberFormat.fake` runs on for tensors on the CPU."""
    return "torch" if library() is None else "native"
