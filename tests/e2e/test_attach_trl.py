"""A job of TRL's that was started without trimtab is attached to while it runs, steered, and let go."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from armed_runs import Environment

from trimtab.api.bench.attach import TRL
from trimtab.api.client import Client
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.storage.values import EntryKind

pytestmark = pytest.mark.slow
PATIENCE = 0.05


class Job:
    """A real GRPOTrainer in a process of an armed environment."""

    def __init__(self, process: subprocess.Popen[str], out: Path, stop: Path) -> None:
        self.pid, self._process, self._out, self._stop = str(process.pid), process, out, stop
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"

    def finished(self) -> Any:
        self._stop.touch()
        assert self._process.wait(60) == 0
        return json.loads(self._out.read_text())


@contextmanager
def training(environment: Environment, folder: Path) -> Iterator[Job]:
    command = [environment.python, "-P", TRL.path, folder / "out.json", folder / "stop"]
    variables = environment.variables | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            yield Job(process, folder / "out.json", folder / "stop")
        finally:
            process.kill()


def alone(environment: Environment, folder: Path, steps: int) -> Any:
    """The same job, to which nobody attaches."""
    command = [environment.python, "-P", TRL.path, folder / "alone.json", folder / "never", str(steps)]
    subprocess.run(command, check=True, capture_output=True, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return json.loads((folder / "alone.json").read_text())


@pytest.fixture
def armed(tmp_path: Path) -> Environment:
    environment = Environment(tmp_path / "venv")
    environment.trimtab("arm")
    return environment


def test_attached_watched_and_let_go_it_is_the_run_it_would_have_been(armed: Environment, tmp_path: Path) -> None:
    service = Service.open(tmp_path / "agent.db")
    with running(service) as url, training(armed, tmp_path) as job, Client(url) as client:
        answer = armed.answer("attach", "--pid", job.pid, "--url", url, "--job-name", "late")
        assert (answer["framework"], answer["trainer"]) == ("trl", "trl.trainer.grpo_trainer.GRPOTrainer")
        while not client.jobs() or (client.job("late").step or 0) < 5:
            time.sleep(PATIENCE)
        assert armed.answer("detach", "--pid", job.pid)["job"] == "late"
        end = job.finished()
    entries = [one for one in service.store.recorded("late").entries if one.kind is EntryKind.SUMMARY]
    service.close()
    steps = [one.step for one in entries]
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert steps[-1] < end["steps"]
    same = alone(armed, tmp_path, end["steps"])
    assert (end["digest"], end["new"]) == (same["digest"], same["new"])


def test_steered_while_it_runs(armed: Environment, tmp_path: Path) -> None:
    service = Service.open(tmp_path / "agent.db")
    with running(service) as url, training(armed, tmp_path) as job, Client(url) as client:
        armed.trimtab("attach", "--pid", job.pid, "--url", url, "--job-name", "late")
        while not client.jobs():
            time.sleep(PATIENCE)
        client.patch_controls("late", {"lr_scale": 0.5}, reason="smaller steps")
        while not client.controls("late").in_sync:
            time.sleep(PATIENCE)
        armed.trimtab("detach", "--pid", job.pid)
        end = job.finished()
    scales = [
        json.loads(one.payload)["applied"]["lr_scale"]
        for one in service.store.recorded("late").entries
        if one.kind is EntryKind.SUMMARY
    ]
    service.close()
    assert (scales[0], scales[-1]) == (1.0, 0.5)
    assert end["digest"] != alone(armed, tmp_path, end["steps"])["digest"]
