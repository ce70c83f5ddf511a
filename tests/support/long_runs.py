"""Long recorded runs, and services that are given them quickly."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from agent_runs import Plant

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Mode, OperatorAction, OperatorVerb
from trimtab.api.folding import Input
from trimtab.api.service import Service
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import ACTION, digest
from trimtab.storage.database import Database
from trimtab.storage.values import Entry, EntryKind

AUTO = AgentConfig(mode=Mode.AUTO)
Record = StepSummary | OperatorAction


@cache
def long_run(steps: int, *, noisy_from: int = 12) -> tuple[Record, ...]:
    """A run that the agent saves, obeying it at every step, with a person's hand in it now and then."""
    plant, state, records = Plant(seed=0, noisy_from=noisy_from), RunState.initial("run", Mode.AUTO), []
    for step in range(steps):
        if step % 80 == 60:
            overrides = {"clip_low": 0.1 + step / 10_000}
            action = OperatorAction(
                job="run", verb=OperatorVerb.PATCH_CONTROLS, issuer="ada", reason="why", overrides=overrides
            )
            state = advance(AUTO, state, action).state
            records.append(action)
        summary = plant.advance()
        outcome = advance(AUTO, state, summary)
        state = outcome.state
        plant.obey(outcome.command)
        records.append(summary)
    return tuple(records)


def opened(target: str | Path, clock: Callable[[], float] = time.time) -> Service:
    """A service whose jobs are in mode auto."""
    database = Database(target)
    database.migrate()
    return Service(database, default_config=AUTO, clock=clock)


def give(service: Service, records: Sequence[Record], at_once: int = 100) -> None:
    """Store and fold records, many in a transaction."""
    for start in range(0, len(records), at_once):
        for answer in service.commit([_input(service, record) for record in records[start : start + at_once]]):
            assert not isinstance(answer, Exception), answer


def _input(service: Service, record: Record) -> Input:
    if isinstance(record, StepSummary):
        return service.summary_input(record)
    payload = ACTION.encode(record)
    entry = Entry(kind=EntryKind.OPERATOR, payload=payload, digest=digest(payload), received_at=service.clock())
    return Input(job=record.job, entry=entry, record=record)


class Clock:
    """A wall clock and a monotonic one, which stand still until time passes; the first may be set besides."""

    def __init__(self) -> None:
        self.wall, self.mono = 1_000_000.0, 0.0

    def __call__(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def pass_time(self, seconds: float) -> None:
        """Let as much pass on both."""
        self.wall += seconds
        self.mono += seconds
