"""The compiled form of `trimtab.hooks.accumulate.measure`, for arrays and CPU tensors."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.compiled import Source
from trimtab.hooks.controls import RatioReference
from trimtab.hooks.layout import SIGNS, SKETCHES, TENSORS, log_ratios
from trimtab.hooks.planes import Planes
from trimtab.hooks.records import TokenBatch
from trimtab.hooks.sketch import CELLS

SOURCE = Source(
    Path(__file__).with_name("measure.c"),
    flags=("-fopenmp-simd", "-ffp-contract=fast"),
    tuning=("-march=native", "-mprefer-vector-width=512"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The compiled function, or why there is none."""

    measure: Callable[..., None] | None
    reason: str


class Loader:
    """Gets the compiled function without making a training step wait: a thread compiles what is not cached yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loaded = Loaded(measure=None, reason="being compiled")

    def load(self, *, wait: bool = False) -> Loaded:
        """What there is now; with `wait`, after the compiler is done. Never raises."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._load, name="trimtab-compile", daemon=True)
                self._thread.start()
        if wait:
            self._thread.join()
        return self._loaded

    def _load(self) -> None:
        compiled = SOURCE.compiled()
        function = getattr(compiled.library, "trimtab_measure", None)
        if function is not None:
            pointer, long = ctypes.c_void_p, ctypes.c_long
            function.argtypes = [long, pointer, long, long, pointer, long, pointer, pointer, pointer]
            function.restype = None
        self._loaded = Loaded(measure=function, reason=compiled.reason)


LOADER = Loader()
"""The process's one loader."""


class NativeSums:
    """Adds batches to a vector with the compiled function. Keeps scratch memory only."""

    def __init__(self, measure: Callable[..., None]) -> None:
        self._measure = measure
        self._tables = np.zeros((len(SKETCHES), SIGNS + 1, CELLS), dtype=np.uint32)

    def add(self, vector: NDArray[np.float64], batch: TokenBatch, planes: Planes, reference: RatioReference) -> None:
        """Add one batch, whose tensors are in `planes`, to a vector of shape [SIZE]."""
        values = planes.values
        addresses = (ctypes.c_void_p * len(TENSORS))(*(_address(values.get(name)) for name in TENSORS))
        mask = planes.mask
        one_each = values["advantages"].size == mask.size
        self._measure(
            mask.size,
            addresses,
            1 if one_each else mask.shape[-1],
            mask.shape[1] if mask.ndim == 2 else -1,
            _address(mask),
            mask.itemsize,
            _numbered(tuple(log_ratios(batch, reference).items())),
            _address(self._tables),
            _address(vector),
        )


@cache
def _numbered(pairs: tuple[tuple[str, tuple[str, str]], ...]) -> ctypes.Array[ctypes.c_int32]:
    """Tensor numbers of numerator and denominator of each sketch, -1 where there are none."""
    numbers = (ctypes.c_int32 * (2 * len(SKETCHES)))(*[-1] * (2 * len(SKETCHES)))
    for sketch, tensors in pairs:
        start = 2 * SKETCHES.index(sketch)
        numbers[start : start + 2] = [TENSORS.index(tensor) for tensor in tensors]
    return numbers


def _address(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.__array_interface__["data"][0]
