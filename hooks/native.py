"""`measure.c`, compiled for this processor when it is first needed; without a compiler `measure` does the work.

The library goes to `$XDG_CACHE_HOME/trimtab` (or `~/.cache/trimtab`) under a name that hashes the source, the flags,
the compiler and the processor. Set TRIMTAB_NO_KERNELS=1 to do without.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.controls import RatioReference
from trimtab.hooks.layout import SIGNS, SKETCHES, TENSORS, log_ratios
from trimtab.hooks.planes import Planes
from trimtab.hooks.records import TokenBatch
from trimtab.hooks.sketch import CELLS

SOURCE = Path(__file__).with_name("measure.c")
FLAGS = ("-O3", "-std=c11", "-shared", "-fPIC", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math")
TUNING = ("-march=native", "-mprefer-vector-width=512")
COMPILE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What came of looking for the compiled function."""

    measure: Callable[..., None] | None
    reason: str
    """Where it is, or why there is none."""


@cache
def load() -> Loaded:
    """Compile if need be and load; never raises.

    Processes that start together may each compile: every one renames its own finished file into place.
    """
    if os.environ.get("TRIMTAB_NO_KERNELS", "") not in ("", "0"):
        return Loaded(measure=None, reason="TRIMTAB_NO_KERNELS is set")
    try:
        path = _compiled()
        function = ctypes.CDLL(str(path)).trimtab_measure
    except subprocess.CalledProcessError as error:
        return Loaded(measure=None, reason=f"{error.cmd[0]} failed: {error.stderr.strip()[:500]}")
    except (OSError, RuntimeError, subprocess.TimeoutExpired, AttributeError) as error:
        return Loaded(measure=None, reason=f"{type(error).__name__}: {error}")
    pointer, long = ctypes.c_void_p, ctypes.c_long
    function.argtypes = [long, pointer, long, pointer, long, pointer, pointer, pointer]
    function.restype = None
    return Loaded(measure=function, reason=str(path))


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


def _compiled() -> Path:
    """Path of the shared library, compiled now if nobody has yet."""
    compiler = os.environ.get("CC", "cc")
    source = SOURCE.read_bytes()
    # A home directory may be shared between machines with different processors.
    identity = "\0".join((compiler, *FLAGS, *TUNING, platform.machine(), _processor())).encode()
    home = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "trimtab"
    path = folder / f"measure-{hashlib.sha256(source + identity).hexdigest()[:20]}.so"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / path.name
            _compile([*compiler.split(), *FLAGS, str(SOURCE), "-o", str(built), "-lm"])
            built.replace(path)
    return path


def _compile(command: list[str]) -> None:
    try:
        _run([*command, *TUNING])
    except subprocess.CalledProcessError:  # a compiler that does not know them for this machine
        _run(command)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_SECONDS)


def _processor() -> str:
    """What tells processors apart, from /proc/cpuinfo where there is one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("flags", "Features", "model name", "cpu family", "model", "CPU part")
    first: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in wanted:
            first.setdefault(key.strip(), value.strip())
    return repr(first)
