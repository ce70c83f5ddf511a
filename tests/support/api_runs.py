"""Plants joined to a service over HTTP, and the program in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_runs import Plant

from trimtab.api.cli import main
from trimtab.api.client import Client


def drive(client: Client, plant: Plant, steps: int) -> None:
    """Report `steps` steps of a plant, which obeys every reply."""
    for _ in range(steps):
        plant.obey(client.ingest(plant.advance()).command)


def trimtab(*arguments: str | Path, check: bool = True, columns: int = 200) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, `columns` wide and without colours."""
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    command = [sys.executable, "-c", "from trimtab.api.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@contextmanager
def serving(db: Path, *arguments: str, stderr: int | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`trimtab serve` on a free port: the process and its address. It is killed, not asked, when the block ends."""
    program = "from trimtab.api.cli import main; main()"
    command = [sys.executable, "-c", program, "serve", "--db", str(db), "--port", "0", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"no ready line; exit status {process.wait(10)}"
            yield process, json.loads(line)["url"]
        finally:
            process.kill()


def trimtab_here(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end in this process, which saves it the second that another takes to start."""
    capsys.readouterr()
    before, sys.argv = sys.argv, ["trimtab", *map(str, arguments)]
    try:
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = before
    told = capsys.readouterr()
    return subprocess.CompletedProcess(arguments, status, told.out, told.err)
