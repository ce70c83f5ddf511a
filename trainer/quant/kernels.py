"""Compiled versions of the formats, bit-equal to the torch code; without them everything still works, slower.

`kernels.c` is compiled with `cc` (or `$CC`) when it is first needed, into `$XDG_CACHE_HOME/trimtab` (or `~/.cache`),
under a name that hashes the source, the flags, the compiler and the processor. Set TRIMTAB_NO_KERNELS=1 to do without.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-O3", "-std=c11", "-shared", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
"""No fused multiply-adds nor anything else that changes a bit; the last two drop errno and floating-point flags."""
COMPILE_SECONDS = 60.0


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


SIZE_ARGUMENTS = {"bf16": 1, "fp8_groups": 2, "fp8_tiles": 3, "mxfp8": 1, "nvfp4": 2, "nvfp4_46": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What came of looking for the kernels."""

    library: Library | None
    reason: str
    """Where the library is, or why there is none."""


@cache
def load() -> Loaded:
    """Compile the kernels if need be and load them; never raises.

    Processes that start together may each compile: every one renames its own finished file into place, and all of them
    are equal.
    """
    if os.environ.get("TRIMTAB_NO_KERNELS", "") not in ("", "0"):
        return Loaded(library=None, reason="TRIMTAB_NO_KERNELS is set")
    try:
        path = _compiled()
        return Loaded(library=_bind(ctypes.CDLL(str(path))), reason=str(path))
    except subprocess.CalledProcessError as error:
        return Loaded(library=None, reason=f"{error.cmd[0]} failed: {error.stderr.strip()[:500]}")
    except (OSError, RuntimeError, subprocess.TimeoutExpired, AttributeError) as error:
        return Loaded(library=None, reason=f"{type(error).__name__}: {error}")


def library() -> Library | None:
    """The compiled functions, or None where there are none."""
    return load().library


def backend() -> Literal["native", "torch"]:
    """What `NumberFormat.fake` runs on for tensors on the CPU; `load().reason` says why."""
    return "torch" if library() is None else "native"


def _compiled() -> Path:
    """Path of the shared library, compiled now if nobody has yet."""
    compiler = os.environ.get("CC", "cc")
    source = SOURCE.read_bytes()
    # The library is compiled for this very processor, and a home directory may be shared between different ones.
    identity = "\0".join((compiler, *FLAGS, platform.machine(), _processor())).encode()
    path = _cache_dir() / f"kernels-{hashlib.sha256(source + identity).hexdigest()[:20]}.so"
    if path.exists():
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        built = Path(scratch) / path.name
        _compile(compiler, built)
        built.replace(path)
    return path


def _compile(compiler: str, target: Path) -> None:
    command = [*compiler.split(), *FLAGS, str(SOURCE), "-o", str(target), "-lm"]
    try:
        _run([*command, "-march=native"])
    except subprocess.CalledProcessError:  # a compiler without -march=native for this machine
        _run(command)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_SECONDS)


def _cache_dir() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "trimtab"


def _processor() -> str:
    """What tells processors apart: the first block of /proc/cpuinfo that is about features, or the processor's name."""
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


def _bind(shared: Any) -> Library:
    functions: dict[str, Any] = {}
    for name in (f.name for f in fields(Library)):
        function = getattr(shared, f"trimtab_{name}")
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_long] * SIZE_ARGUMENTS[name]
        function.restype = None
        functions[name] = function
    return Library(**functions)
