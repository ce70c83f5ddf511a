"""A short run of several ranks, written down step by step, and what came of it on one of them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from hook_runs import CAN

import trimtab
from trimtab.hooks.collective import Collective
from trimtab.hooks.controls import Controls
from trimtab.hooks.records import Command, StepSummary
from trimtab.hooks.transport.memory import MemoryTransport


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of all ranks."""

    batches: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """What each rank observes; nothing where it is missing."""
    command: Command | None = None
    """What the agent says during the step."""
    environment: dict[int, dict[str, str]] = field(default_factory=dict)
    """Set on each rank before the step ends."""
    refuse: str = ""
    """A control whose override turns out to be impossible, before the step ends."""
    attempt: int = 0
    """Begins before the step."""
    base: Controls | None = None


@dataclass(frozen=True, kw_only=True)
class Played:
    """What one rank saw."""

    attempt: int
    controls: list[Controls]
    """In effect after each step."""
    generations: list[int]
    last: StepSummary | None
    sent: list[StepSummary]
    """Of rank 0."""
    failures: int
    dropped: int


def play(collective: Collective, steps: list[Step], url: str = "memory:", **arguments: Any) -> Played:
    """The run, seen from one rank."""
    arguments = {"attempt": 1, "capabilities": CAN, "spool": None, **arguments}
    with trimtab.attach(url, job="run", collective=collective, **arguments) as emitter:
        controls, generations = [], []
        for number, step in enumerate(steps):
            if step.attempt:
                emitter.begin_attempt(step.attempt, step.base or Controls())
            for batch in step.batches.get(collective.rank, []):
                emitter.observe(**batch)
            if step.command is not None and isinstance(emitter.transport, MemoryTransport):
                emitter.transport.set_command(step.command)
            os.environ.update(step.environment.get(collective.rank, {}))
            if step.refuse:
                emitter.refuse(step.refuse, "not to be had")
            controls.append(emitter.end_step(step=number, scalars={"loss": 0.5 + collective.rank}, base=step.base))
            generations.append(emitter.generation)
    sent = emitter.transport.sent if isinstance(emitter.transport, MemoryTransport) else []
    return Played(
        attempt=emitter.attempt,
        controls=controls,
        generations=generations,
        last=emitter.last_summary,
        sent=sent,
        failures=emitter.failures,
        dropped=emitter.dropped,
    )


def play_together(steps: list[Step], url: str = "memory:") -> Played:
    """The same as a rank of the default process group."""
    from trimtab.hooks.collective_torch import TorchCollective

    return play(TorchCollective(), steps, url)
