"""Environments that can be armed, and processes in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LOOP = Path(__file__).with_name("armed_loop.py")
TRAINER = ("--trainer", "__main__.Loop", "--adapter", "__main__.attach")


class Environment:
    """A virtual environment in which everything can be imported that can be here, and that nobody else uses."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
        self.python = folder / "bin" / "python"
        self.site = next(folder.glob("lib/python*/site-packages"))
        (self.site / "here.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        self.variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def code(self, program: str, *arguments: str | Path, **variables: str) -> str:
        """What `program` prints, which must end well and quietly."""
        command = [self.python, "-c", program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=self.variables | variables)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    def trimtab(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the command line in this environment."""
        command = [self.python, "-m", "trimtab", *map(str, arguments)]
        variables = self.variables | {"COLUMNS": "200", "NO_COLOR": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=variables)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def answer(self, *arguments: str | Path) -> Any:
        """What a command of trimtab prints as JSON."""
        return json.loads(self.trimtab(*arguments, "--json").stdout)


class Training:
    """A process that trains until it is told to stop."""

    def __init__(self, process: subprocess.Popen[str], stop: Path) -> None:
        self.pid, self._process, self._stop = process.pid, process, stop
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"

    def finished(self) -> dict[str, Any]:
        """What it tells at its end."""
        self._stop.touch()
        out, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0
        last: dict[str, Any] = json.loads(out.splitlines()[-1])
        return last


@contextmanager
def training(
    environment: Environment, folder: Path, program: str | Path = LOOP, **variables: str
) -> Iterator[Training]:
    """A process that trains, of a program in a file or of code; killed at the end if it has not finished."""
    stop = folder / "stop"
    start = ["-c", program] if isinstance(program, str) else [program]
    command = [environment.python, *start, stop]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment.variables | variables, cwd=folder
    ) as process:
        try:
            yield Training(process, stop)
        finally:
            process.kill()
