"""Puts the stub into an environment, and takes it away: a module and a `.pth` that imports it, in site-packages."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import py_compile
import sys
import sysconfig
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from trimtab.hooks.armed import stub

MODULE = f"{stub.NAME}.py"
PTH = f"{stub.NAME}.pth"
LINE = f"import {stub.NAME}\n"


class InstallError(RuntimeError):
    """The environment cannot be written to; the message says what to do."""


class Armed(StrEnum):
    """Whether processes of an environment will be armed."""

    YES = "yes"
    NO = "no"
    OTHER = "of another version of trimtab"
    """`trimtab arm` brings it up to date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The folder of an environment in which Python looks for `.pth` files at its start."""

    folder: Path

    @classmethod
    def of_this_python(cls) -> Site:
        """That of the environment that this process runs in."""
        return cls(folder=Path(sysconfig.get_path("purelib")))

    @property
    def shared(self) -> bool:
        """Whether it is the machine's Python rather than an environment of somebody's."""
        return sys.prefix == sys.base_prefix

    def armed(self) -> Armed:
        """What is there now."""
        try:
            module, line = (self.folder / MODULE).read_text(), (self.folder / PTH).read_text()
        except FileNotFoundError:
            there = (self.folder / PTH).exists() or (self.folder / MODULE).exists()
            return Armed.OTHER if there else Armed.NO
        return Armed.YES if (module, line) == (_source(), LINE) else Armed.OTHER

    def arm(self) -> None:
        """Let every Python process of this environment be armed from its start on.

        Raises:
            InstallError: the folder cannot be written to.
        """
        try:
            _replace(self.folder / MODULE, _source())
            py_compile.compile(str(self.folder / MODULE), doraise=True)  # or the first start would pay for it
            _replace(self.folder / PTH, LINE)  # last, so that it never names what is not there
        except OSError as error:
            raise InstallError(
                f"{self.folder} cannot be written to ({error.strerror}); use an environment of your own"
            ) from error

    def undo(self) -> None:
        """Let no process that starts from now on be armed; those that run stay armed to their end.

        Raises:
            InstallError: the folder cannot be written to.
        """
        try:
            compiled = importlib.util.cache_from_source(str(self.folder / MODULE))
            for path in (self.folder / PTH, self.folder / MODULE, Path(compiled)):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise InstallError(f"{self.folder} cannot be written to ({error.strerror}); ask whose it is") from error
        with contextlib.suppress(OSError):  # others' files are in it
            Path(compiled).parent.rmdir()


def _source() -> str:
    return Path(stub.__file__).read_text()


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(text)
    os.replace(new, path)
