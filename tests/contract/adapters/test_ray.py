"""Workers that are Ray actors, where Ray is installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trimtab.hooks.attach import attach
from trimtab.hooks.fleet import Fleet, RayCaller
from trimtab.hooks.transport.memory import MemoryTransport

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def workers() -> Iterator[list[Any]]:
    import ray

    search = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join([search, os.environ.get("PYTHONPATH", "")])}}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env=environment, log_to_driver=False)

    class Worker:
        def train(self, count: int) -> int:
            from hook_runs import tensors

            from trimtab.hooks.meter import METER

            for _ in range(count):
                METER.observe(**tensors())
            return count

    remote = ray.remote(num_cpus=0.5)(Worker)
    yield [remote.remote() for _ in range(2)]
    ray.shutdown()


def test_a_driver_reports_for_its_actors_and_stops_when_they_are_killed(workers: list[Any]) -> None:
    import ray

    emitter = attach("memory:", job="run", collective=Fleet(RayCaller(lambda: workers)))
    for step in range(3):
        ray.get([worker.train.remote(1 + place) for place, worker in enumerate(workers)])
        emitter.end_step(step=step)
    for worker in workers:
        ray.kill(worker)
    for step in range(3, 10):
        emitter.end_step(step=step)
    assert isinstance(emitter.transport, MemoryTransport)
    assert [(summary.tokens, summary.ranks) for summary in emitter.transport.sent][:2] == [(24, 2), (24, 2)]
    assert emitter.stopped
