"""A TRL run that fails by itself: attended from the start, and attached to while it fails."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from armed_runs import Environment

from trimtab.api.bench.rescue import NO_CLIP, TASK, bench_rescue
from trimtab.api.bench.trl_task import warm_model
from trimtab.api.client import Client
from trimtab.api.server import running
from trimtab.api.service import Service

pytestmark = pytest.mark.slow
JOB = Path(__file__).parents[1] / "support" / "loose_job.py"
GENERATIONS = 40
PATIENCE = 0.1


def test_the_attended_run_ends_where_the_healthy_one_does_and_the_other_at_chance(tmp_path: Path) -> None:
    (rescue,) = bench_rescue([0], GENERATIONS, tmp_path)
    assert rescue.alone < 0.5 * rescue.healthy
    assert rescue.attended >= 0.9 * rescue.healthy
    assert any("tighter_clip" in remedy for remedy in rescue.remedies)


def test_a_job_that_runs_is_attached_to_its_fault_found_and_remedied_and_the_job_let_go(tmp_path: Path) -> None:
    warm_model(TASK)  # cached before the job asks for it
    armed = Environment(tmp_path / "venv")
    armed.trimtab("arm")
    service = Service.open(tmp_path / "agent.db")
    command = [armed.python, "-P", JOB, tmp_path / "out.json", tmp_path / "stop"]
    variables = armed.variables | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (
        running(service) as url,
        Client(url) as client,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as job,
    ):
        assert job.stdout is not None
        assert job.stdout.readline() == "training\n"
        client.register("late", mode="auto")
        armed.trimtab("attach", "--pid", str(job.pid), "--url", url, "--job-name", "late")
        while not (kinds := [event.kind for event in client.events("late")]).count("controls_applied"):
            assert job.poll() is None, "training stopped"
            time.sleep(PATIENCE)
        assert kinds.index("incident_firing") < kinds.index("proposed") < kinds.index("controls_applied")
        first = next(event for event in client.events("late") if event.kind == "proposed")
        armed.trimtab("detach", "--pid", str(job.pid))
        (tmp_path / "stop").touch()
        assert job.wait(60) == 0
    service.close()
    assert first.detail["remedy"] == "tighter_clip"
    told = json.loads((tmp_path / "out.json").read_text())
    assert len(told["clips"]) == told["steps"]  # every step was made
    changes = [clip for clip, before in zip(told["clips"], [None, *told["clips"]], strict=False) if clip != before]
    assert changes[:2] == [NO_CLIP, 0.2]
    assert changes in ([NO_CLIP, 0.2], [NO_CLIP, 0.2, NO_CLIP])  # the last where a step came between detach and stop
