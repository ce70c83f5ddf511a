"""Lines of text into a file, a pipe, or standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from gzip import GzipFile
from pathlib import Path

from trimtab.api.cli.errors import UsageError


def write_lines(out: Path | None, wanted: Iterator[str]) -> None:
    """Write lines, given without their ends, to `out`, gzipped where its name ends in .gz; None is standard output.

    Raises:
        UsageError: the file cannot be written.
    """
    if out is None:
        for line in wanted:
            sys.stdout.write(line + "\n")
        return
    try:
        _write(out, wanted)
    except OSError as error:
        raise UsageError(f"out: {out} cannot be written ({error.strerror})") from error


def _write(out: Path, wanted: Iterator[str]) -> None:
    """Into a file all at once or not at all; into a pipe, a device or the like as it is."""
    if out.exists() and not out.is_file():
        with out.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in wanted)
        return
    target = out.resolve()  # a link stays one
    partial = target.with_name(target.name + ".part")
    packed = target.suffix == ".gz"
    try:
        with partial.open("wb") as file:
            # Without name and time, so that the same job is the same file.
            with GzipFile("", "wb", fileobj=file, mtime=0) if packed else nullcontext(file) as into:
                into.writelines(f"{line}\n".encode() for line in wanted)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
