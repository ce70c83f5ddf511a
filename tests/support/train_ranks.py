"""A run of the reference trainer on one rank of the default process group, or alone where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import torch.distributed as dist

from trimtab.agent.state import OperatorAction
from trimtab.api.service import Service
from trimtab.trainer.config import RunConfig
from trimtab.trainer.run import RunResult, execute
from trimtab.trainer.step_record import StepRecord
from trimtab.trainer.world import World

JOB = "t"


def train(
    config: RunConfig,
    out: Path,
    cache: Path,
    asked: dict[tuple[int, int], OperatorAction] | None = None,
    resume: bool = False,
    attempt: int = 7,
    apart: bool = False,
) -> tuple[list[StepRecord], RunResult]:
    """The steps as this rank saw them, and the result; rank 0 reports to an agent of its own.

    Args:
        config: the run.
        out: its folder.
        cache: folder of the warm starts.
        asked: what a person does, by the attempt and the step after which it is done.
        resume: go on from the folder's newest checkpoint.
        attempt: number of the start.
        apart: the ranks share no disk.
    """
    os.environ["XDG_CACHE_HOME"] = str(cache)
    world = World(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else World()
    service = Service.open(out / "agent.db") if asked and world.first else None
    records = []

    def on_step(record: StepRecord) -> None:
        records.append(record)
        action = (asked or {}).get((record.attempt, record.step))
        if service is not None and action is not None:
            service.operate(action)

    url = f"local:{out / 'agent.db'}" if asked else f"file:{out / 'recorded'}"
    if apart:
        out = out / f"machine{world.rank}"
    result = execute(config, url=url, job=JOB, out=out, attempt=attempt, resume=resume, world=world, on_step=on_step)
    if service is not None:
        service.close()
    return records, result
