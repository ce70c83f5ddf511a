"""Work for the processes of a lab, in a module that they can import."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

PATIENCE = 60.0


def write(path: Path, text: str) -> None:
    path.write_text(text)


def fail(text: str) -> None:
    raise ValueError(text)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(path: Path) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(str(os.getpid()))
    partial.replace(path)
    time.sleep(PATIENCE)


if __name__ == "__main__":
    from lab_work import sleep as importable  # by a name that a child can import

    from trimtab.api.workers import Work, perform

    path = Path(sys.argv[1])
    perform([Work(name="long", function=importable, arguments=(path,), log=path.with_suffix(".log"))], 1)
