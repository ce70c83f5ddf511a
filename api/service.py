"""The imperative shell around the fold: one input, one transaction, one answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from trimtab.agent.advance import Outcome, advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.signals import read_all
from trimtab.agent.state import Event, Mode, OperatorAction, OperatorVerb
from trimtab.api.problem import ApiError
from trimtab.hooks.records import Command, RecordError, StepSummary, check_job
from trimtab.storage.codec import ACTION, CONFIG, EVENT, RUN_STATE, SUMMARY, digest
from trimtab.storage.store import Appended, Fold, Store
from trimtab.storage.values import Entry, EntryKind, Folded, NewEvent

MAX_INTEGER = 2**53
"""Attempts, steps and ranks stay below it: larger integers do not survive JSON in every language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What became of a summary, and what the agent wants of its job now."""

    result: Appended
    command: Command | None


class Service:
    """Registers jobs, takes summaries and people's actions, and answers with commands.

    Inputs of one job are handled one after another, in the order in which their transactions begin.
    """

    def __init__(
        self, store: Store, *, default_config: AgentConfig | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self.clock = clock
        """Unix seconds; stored for people, never folded."""
        self._default_config = CONFIG.encode(default_config or AgentConfig())

    @classmethod
    def open(cls, target: str | Path, *, default_config: AgentConfig | None = None) -> Service:
        """A service on a database URL or the path of an SQLite file, migrated. Raises `StorageError`."""
        store = Store(target)
        store.migrate()
        return cls(store, default_config=default_config)

    def register(self, job: str, *, config: AgentConfig | None, mode: Mode | None, issuer: str, reason: str) -> None:
        """Make sure that the job exists, with these settings and in this mode; None leaves what there is.

        Raises:
            RecordError: the name cannot name a job.
            ConfigFixedError: the job has a ledger that was folded with other settings.
        """
        check_job(job)
        if config is not None or job not in {known.name for known in self.store.jobs()}:
            self.store.register(job, self._default_config if config is None else CONFIG.encode(config), self.clock())
        if mode is not None and self.state(job).mode is not mode:
            self.operate(OperatorAction(job=job, verb=OperatorVerb.SET_MODE, issuer=issuer, reason=reason, mode=mode))

    def ingest(self, summary: StepSummary) -> Ingested:
        """Fold one summary in. A job that is not known is registered, in mode observe.

        Raises:
            RecordError: an integer of the key is too large.
            ConflictError: another summary holds the key (attempt, step, rank).
        """
        for name in ("attempt", "step", "rank"):
            if getattr(summary, name) > MAX_INTEGER:
                raise RecordError(f"{name}: {getattr(summary, name)} is larger than 2**53")
        payload = SUMMARY.encode(summary)
        summary = SUMMARY.decode(payload)  # fold exactly what a replay will fold: 1 and 1.0 are one number from here on
        entry = Entry(
            kind=EntryKind.SUMMARY,
            payload=payload,
            digest=digest(payload),
            received_at=self.clock(),
            attempt=summary.attempt,
            step=summary.step,
            rank=summary.rank,
        )
        fold = _fold(summary.job, summary, _charted(summary))
        result, outcome = self.store.append(summary.job, entry, fold, config_if_new=self._default_config)
        return Ingested(result=result, command=outcome.command)

    def operate(self, action: OperatorAction, *, base_generation: int | None = None) -> Outcome:
        """Fold one person's decision in.

        Raises:
            UnknownJobError: there is no such job.
            ApiError: `base_generation` is not the generation of the desired overrides any more (409).
        """
        self.store.job(action.job)
        payload = ACTION.encode(action)
        action = ACTION.decode(payload)
        entry = Entry(kind=EntryKind.OPERATOR, payload=payload, digest=digest(payload), received_at=self.clock())
        fold = _fold(action.job, action, {}, base_generation)
        _, outcome = self.store.append(action.job, entry, fold, config_if_new=self._default_config)
        return outcome

    def state(self, job: str) -> RunState:
        """The job's state. Raises `UnknownJobError`."""
        stored = self.store.state(job)
        if stored is not None:
            return RUN_STATE.decode(stored)
        return RunState.initial(job, CONFIG.decode(self.store.job(job).config).mode)

    def dropped(self, job: str) -> int:
        """Summaries that the job's trainer has lost, as its last summary says. Raises `UnknownJobError`."""
        latest = self.store.latest_summary(job)
        return 0 if latest is None else SUMMARY.decode(latest.payload).dropped_total


def _fold(
    job: str,
    record: StepSummary | OperatorAction,
    observed: dict[str, float],
    base_generation: int | None = None,
) -> Fold[Outcome]:
    def fold(config: str, stored: str | None) -> Folded[Outcome]:
        settings = CONFIG.decode(config)
        state = RunState.initial(job, settings.mode) if stored is None else RUN_STATE.decode(stored)
        if base_generation is not None and base_generation != state.generation:
            raise ApiError(
                HTTPStatus.CONFLICT,
                "base_generation",
                f"the controls are at generation {state.generation}; look at them again, then repeat the change",
                base_generation,
            )
        outcome = advance(settings, state, record)
        return Folded(
            state=RUN_STATE.encode(outcome.state),
            events=tuple(map(_stored, outcome.events)),
            signals=observed,
            result=outcome,
        )

    return fold


def _charted(summary: StepSummary) -> dict[str, float]:
    """The signals that were observed, and the trainer's own scalars beside them."""
    observed = {name: value for name, value in read_all(summary).items() if value is not None}
    return {**summary.scalars, **observed}


def _stored(event: Event) -> NewEvent:
    plain = json.loads(EVENT.encode(event))
    return NewEvent(
        kind=event.kind,
        attempt=event.attempt,
        step=event.step,
        message=event.message,
        detail=json.dumps(plain["detail"]),
    )
