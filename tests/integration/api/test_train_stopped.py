"""Ctrl-C in the middle of `trimtab train`: what is told of the way on is so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimtab.trainer.checkpoint import Checkpoints
from trimtab.trainer.run import CHECKPOINTS, STEPS

pytestmark = pytest.mark.slow

CONFIG = """
steps = 100000
task.digits = 3
model = { width = 32, layers = 1, heads = 2, hidden = 32 }
warm_start = { steps = 2, batch = 8 }
rollout = { prompts = 2, group_size = 2 }
evaluation.prompts = 0
"""


def stopped(folder: Path, mode: str, every: int) -> str:
    """What a run says that is stopped once it has done a step, and has written a checkpoint if it writes any."""
    (folder / "run.toml").write_text(CONFIG)
    out = folder / "out"
    settings = ["--set", f"asynchrony.mode={mode}", "--set", f"checkpoint.every={every}"]
    command = [sys.executable, "-m", "trimtab", "train", str(folder / "run.toml"), "--out", str(out), *settings]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        awaited = f"{CHECKPOINTS}/*.pt" if every else STEPS
        while not list(out.glob(awaited)) and running.poll() is None:
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        said = running.communicate()[1]
    assert running.returncode == 130
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("mode", ["off", "thread", "process"])
def test_a_run_with_a_checkpoint_can_go_on_from_it(tmp_path: Path, mode: str) -> None:
    said = stopped(tmp_path, mode, every=1)
    newest = Checkpoints(tmp_path / "out" / CHECKPOINTS, keep=5).names()[-1]
    assert f"stopped; the same command with --resume goes on from the checkpoint {newest} in" in said


def test_a_run_without_checkpoints_cannot(tmp_path: Path) -> None:
    said = stopped(tmp_path, "off", every=0)
    assert "stopped; there is no checkpoint in" in said
    assert "so the same command begins anew" in said
    assert "--resume" not in said
