"""Small C sources, compiled for this processor when they are first needed; everything works without them, slower.

The library goes to `$XDG_CACHE_HOME/trimtab` (or `~/.cache/trimtab`) under a name that hashes the source, the flags,
the compiler (`cc`, or `$CC`) and the processor. Set TRIMTAB_NO_KERNELS=1 to do without.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

COMMON_FLAGS = ("-O3", "-std=c11", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
"""The last two drop errno and floating-point exception flags, which nothing here reads; they change no result."""
COMPILE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What came of looking for a library."""

    library: ctypes.CDLL | None
    reason: str
    """Where it is, or why there is none."""


@dataclass(frozen=True, slots=True)
class Source:
    """One C file and how it is compiled: `flags` beside the common ones, `tuning` only where the compiler knows it."""

    path: Path
    flags: tuple[str, ...] = ()
    tuning: tuple[str, ...] = ("-march=native",)

    def target(self) -> Path:
        """Where the library is or will be."""
        # A home directory may be shared between machines with different processors.
        how = (_compiler(), *COMMON_FLAGS, *self.flags, *self.tuning, platform.machine(), _processor())
        digest = hashlib.sha256(self.path.read_bytes() + "\0".join(how).encode()).hexdigest()
        return cache_dir() / f"{self.path.stem}-{digest[:20]}.so"

    def compiled(self) -> Compiled:
        """The library, compiled now if nobody has yet; never raises.

        Processes that start together may each compile: every one renames its own finished file into place, and all of
        them are equal.
        """
        if os.environ.get("TRIMTAB_NO_KERNELS", "") not in ("", "0"):
            return Compiled(library=None, reason="TRIMTAB_NO_KERNELS is set")
        try:
            target = self.target()
            if not target.exists():
                self._compile(target)
            return Compiled(library=ctypes.CDLL(str(target)), reason=str(target))
        except subprocess.CalledProcessError as error:
            return Compiled(library=None, reason=f"{error.cmd[0]} failed: {error.stderr.strip()[:500]}")
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            return Compiled(library=None, reason=f"{type(error).__name__}: {error}")

    def _compile(self, target: Path) -> None:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            built = Path(scratch) / target.name
            command = [*_compiler().split(), *COMMON_FLAGS, *self.flags, str(self.path), "-o", str(built), "-lm"]
            try:
                _run([*command, *self.tuning])
            except subprocess.CalledProcessError:  # a compiler that does not know the tuning for this machine
                _run(command)
            built.replace(target)


def cache_dir() -> Path:
    """Folder of everything that trimtab can make again."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "trimtab"


def _compiler() -> str:
    return os.environ.get("CC", "cc")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_SECONDS)


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
