"""`torchrun -m trimtab train`: two processes, one run; and one of them killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimtab.trainer.checkpoint import Checkpoints

pytestmark = pytest.mark.slow

CONFIG = """
steps = {steps}
task.digits = 3
model = {{ width = 32, layers = 1, heads = 2, hidden = 32 }}
warm_start = {{ steps = 30, batch = 32 }}
rollout = {{ prompts = 4, group_size = 2 }}
evaluation.prompts = 8
checkpoint.every = 2
"""


def command(tmp_path: Path, steps: int, *more: str) -> list[str]:
    path = tmp_path / "run.toml"
    path.write_text(CONFIG.format(steps=steps))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*launcher, "-m", "trimtab", "train", str(path), "--out", str(tmp_path / "out"), *more]


def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}


def test_two_processes_are_one_run(tmp_path: Path) -> None:
    recorded = f"file:{tmp_path / 'recorded'}"
    done = subprocess.run(
        command(tmp_path, 3, "--json", "--url", recorded), env=environment(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 3
    assert len((tmp_path / "out" / "steps.jsonl").read_text().splitlines()) == 3


def test_what_cannot_run_is_refused_before_step_0(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, 3, "--set", "rollout.prompts=1", "--set", "update.minibatches=1"),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "rollout.prompts: 1 is fewer than the 2 processes" in done.stderr
    assert not (tmp_path / "out" / "steps.jsonl").exists()


def test_a_killed_rank_ends_the_run_and_its_checkpoint_goes_on(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(command(tmp_path, 100_000), env=environment(tmp_path), stdout=log, stderr=log)
        checkpoints = Checkpoints(tmp_path / "out" / "checkpoints", 5)
        while not checkpoints.names() and running.poll() is None:
            time.sleep(0.05)
        os.kill(rank_1_of(running.pid), signal.SIGKILL)
        assert running.wait() != 0
    assert "SIGKILL" in (tmp_path / "log").read_text()
    done = checkpoints.newest()["step"]
    resumed = subprocess.run(
        command(tmp_path, done + 1, "--json", "--resume"), env=environment(tmp_path), capture_output=True, text=True
    )
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["steps"] == done + 1


def test_ctrl_c_is_told_once_and_its_checkpoint_goes_on(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(
            command(tmp_path, 100_000), env=environment(tmp_path), stdout=log, stderr=log, start_new_session=True
        )
        checkpoints = Checkpoints(tmp_path / "out" / "checkpoints", 5)
        while not checkpoints.names() and running.poll() is None:
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        assert running.wait() != 0
    said = (tmp_path / "log").read_text()
    assert said.count("stopped;") == 1
    assert f"--resume goes on from the checkpoint {checkpoints.names()[-1]} in" in said


def rank_1_of(launcher: int) -> int:
    children = (Path(f"/proc/{launcher}/task/{launcher}/children").read_text()).split()
    (found,) = (pid for pid in children if b"\0RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes())
    return int(found)
