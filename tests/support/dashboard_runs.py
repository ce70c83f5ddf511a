"""Runs for the tests of the dashboard: one saved by the agent, one lost, one healthy."""

from __future__ import annotations

from pathlib import Path

from agent_runs import Plant

from trimtab.agent.state import Mode
from trimtab.api.service import Service

STEPS = 24
NOISY_FROM = 8
HOSTILE = "<img src=x onerror=window.hacked=1><b>bold</b>"
"""Text that would run if anything took it for HTML."""


def three_runs(db: Path) -> Service:
    """`saved` in mode auto, `lost` and `healthy` in mode observe, 24 steps each."""
    service = Service.open(db)
    service.register("saved", config=None, mode=Mode.AUTO, issuer="ada", reason="to be saved")
    for job, noisy_from in (("healthy", None), ("lost", NOISY_FROM), ("saved", NOISY_FROM)):
        advance(service, Plant(seed=0, job=job, noisy_from=noisy_from), STEPS)
    return service


def going_on(job: str) -> Plant:
    """The plant of one of the three runs, at its newest step."""
    plant = Plant(seed=0, job=job, noisy_from=None if job == "healthy" else NOISY_FROM)
    plant.step = STEPS - 1
    return plant


def advance(service: Service, plant: Plant, steps: int) -> None:
    """Some steps of a plant, which obeys."""
    for _ in range(steps):
        plant.obey(service.ingest(plant.advance()).command)
