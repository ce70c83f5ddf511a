"""Compiled versions of the formats, bit-equal to the torch code; `trimtab.hooks.compiled` says when and where."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from trimtab.hooks.compiled import Source

SOURCE = Source(Path(__file__).with_name("kernels.c"), flags=("-ffp-contract=off",))
"""No fused multiply-adds, which would change bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The compiled functions. Each takes the addresses of contiguous float32 input and output, and then its sizes.

    Those in `TAKE_TWO` have two inputs. Those in `TAKE_AMAX` take last the address of a float32 that stands for the
    largest magnitude of every group, or None.
    """

    absmax: Callable[[int, int, int], None]
    """count; writes one value"""
    bf16: Callable[[int, int, int], None]
    """count"""
    fp8_groups: Callable[[int, int, int, int, int, int | None], None]
    """rows, columns, values of a row that share a scale (the last group of a row may have fewer)"""
    e5m2_groups: Callable[[int, int, int, int, int, int | None], None]
    """rows, columns, values of a row that share a scale"""
    fp8_tiles: Callable[[int, int, int, int, int], None]
    """rows, columns, side of a tile (the last ones may be smaller)"""
    mxfp8: Callable[[int, int, int], None]
    """blocks of 32"""
    mxfp8_rceil: Callable[[int, int, int], None]
    """blocks of 32"""
    nvfp4: Callable[[int, int, int, int, int | None], None]
    """groups that share a global scale, values in each"""
    nvfp4_46: Callable[[int, int, int, int, int | None], None]
    """groups that share a global scale, values in each"""
    nvfp4_46_mae: Callable[[int, int, int, int, int | None], None]
    """groups that share a global scale, values in each"""
    nvfp4_tiles: Callable[[int, int, int, int, int | None], None]
    """rows, columns"""
    multiply_14_bits: Callable[[int, int, int, int, int, int], None]
    """two inputs: codes [rows, depth] and, transposed, codes [depth, columns], without NaN; rows, depth, columns, which
    are whole 32s"""


SIZE_ARGUMENTS = {
    "absmax": 1,
    "bf16": 1,
    "fp8_groups": 3,
    "e5m2_groups": 3,
    "fp8_tiles": 3,
    "mxfp8": 1,
    "mxfp8_rceil": 1,
    "nvfp4": 2,
    "nvfp4_46": 2,
    "nvfp4_46_mae": 2,
    "nvfp4_tiles": 2,
    "multiply_14_bits": 3,
}
TAKE_TWO = ("multiply_14_bits",)
TAKE_AMAX = ("fp8_groups", "e5m2_groups", "nvfp4", "nvfp4_46", "nvfp4_46_mae", "nvfp4_tiles")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What came of looking for the kernels."""

    library: Library | None
    reason: str
    """Where the library is, or why there is none."""


@cache
def load() -> Loaded:
    """Compile the kernels if need be and load them; never raises."""
    compiled = SOURCE.compiled()
    library = None if compiled.library is None else _bind(compiled.library)
    return Loaded(library=library, reason=compiled.reason)


def library() -> Library | None:
    """The compiled functions, or None where there are none."""
    return load().library


def backend() -> Literal["native", "torch"]:
    """What `NumberFormat.fake` runs on for tensors on the CPU; `load().reason` says why."""
    return "torch" if library() is None else "native"


def _bind(shared: Any) -> Library:
    functions: dict[str, Any] = {}
    for name in (f.name for f in fields(Library)):
        function = getattr(shared, f"trimtab_{name}")
        function.argtypes = [ctypes.c_void_p] * (3 if name in TAKE_TWO else 2) + [ctypes.c_long] * SIZE_ARGUMENTS[name]
        if name in TAKE_AMAX:
            function.argtypes = [*function.argtypes, ctypes.c_void_p]
        function.restype = None
        functions[name] = function
    return Library(**functions)
