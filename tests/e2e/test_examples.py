"""The programs of `examples/`, as they are told to be run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.hooks.transport.spool import read_spool

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RANKS = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray")

RUNS = {
    "plain.py": ((sys.executable,), (), "40 steps, 128 tokens in the last, reward 1.00, 0 failures", 40),
    "accumulation.py": (
        *((sys.executable,), (), "20 steps of 4 micro-batches: 128 tokens of 16 responses in the last"),
        20,
    ),
    "compiled.py": ((sys.executable,), (), "12 steps, clip bounds to 0.91 and 1.09, compiled 1 time", 12),
    "ranks.py ddp": (RANKS, ("ddp",), "ddp: 10 steps, 256 tokens of 2 ranks in the last", 10),
    "ranks.py fsdp2": (RANKS, ("fsdp2",), "fsdp2: 10 steps, 256 tokens of 2 ranks in the last", 10),
    "ray_actors.py": ((sys.executable,), (), "5 steps, armed: True, the job's own hook: called", 5),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_ray if "ray" in name else ()) for name in RUNS])
def test_an_example_does_what_it_says(name: str, tmp_path: Path) -> None:
    launcher, arguments, told, steps = RUNS[name]
    program = EXAMPLES / name.split()[0]
    environment = os.environ | {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_TMPDIR": "/tmp",  # a socket's path is short
        "PYTHONPATH": str(EXAMPLES.parent),
    }
    recorded = tmp_path / "recorded"
    done = subprocess.run(
        [*launcher, program, *arguments, f"file:{recorded}"],
        capture_output=True,
        text=True,
        timeout=150,
        env=environment,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, told + "\n"), done.stderr
    assert [summary.step for summary in read_spool(recorded)] == list(range(steps))


def test_every_example_is_run() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")} - {"tiny_policy.py"}  # which they share
    assert programs == {name.split()[0] for name in RUNS}
