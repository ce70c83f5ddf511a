"""The imperative shell around the fold: one input, one transaction, one answer."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path

from trimtab.agent.advance import Outcome, advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.operator import check_agrees
from trimtab.agent.run_state import RunState
from trimtab.agent.signals import SIGNALS, read_all
from trimtab.agent.state import Event, Mode, OperatorAction, OperatorVerb
from trimtab.api.portable import check_portable
from trimtab.api.problem import ApiError
from trimtab.api.restore import UnreadableJobError, cached, config_of, record_of, restored, stored
from trimtab.hooks.controls import NUMERIC_BOUNDS, ControlError
from trimtab.hooks.records import Command, StepSummary, check_job
from trimtab.hooks.wire import NON_FINITE
from trimtab.storage.codec import ACTION, CONFIG, EVENT, RUN_STATE, SUMMARY, digest
from trimtab.storage.store import Appended, Fold, Store
from trimtab.storage.values import Entry, EntryKind, Folded, Job, NewEvent, Past, StoredState


class Taken(StrEnum):
    """What became of a summary."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    """The same key with the same content: nothing was written."""
    IGNORED = "ignored"
    """It is in the ledger, and will never be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What became of a summary, and what the agent wants of its job now."""

    result: Taken
    reason: str
    """Why it is ignored; empty where it is not."""
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
        wanted = self._default_config if config is None else CONFIG.encode(config)
        self.store.register(job, wanted, self.clock(), keep=lambda known: config is None or _means(job, known, config))
        if mode is not None and self.state(job).mode is not mode:
            self.operate(OperatorAction(job=job, verb=OperatorVerb.SET_MODE, issuer=issuer, reason=reason, mode=mode))

    def ingest(self, summary: StepSummary) -> Ingested:
        """Fold one summary in. A job that is not known is registered, in mode observe.

        Raises:
            RecordError: an integer is too large, or a string is no text.
            ConflictError: another summary holds the key (attempt, step, rank).
        """
        check_portable(summary)
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
        fold = _fold(summary, _charted(summary))
        appended, outcome = self.store.append(summary.job, entry, fold, config_if_new=self._default_config)
        if appended is Appended.STORED and outcome.ignored:
            return Ingested(result=Taken.IGNORED, reason=outcome.ignored, command=outcome.command)
        return Ingested(result=Taken(appended), reason="", command=outcome.command)

    def operate(self, action: OperatorAction, *, base_generation: int | None = None) -> Outcome:
        """Fold one person's decision in.

        Raises:
            UnknownJobError: there is no such job.
            RecordError: an integer is too large, or a string is no text.
            ControlError: an override that is not finite, since JSON has no way to tell it from a name, or that the
                trainer would refuse.
            ApiError: `base_generation` is not the generation of the desired overrides any more (409).
        """
        check_portable(action)
        self.store.job(action.job)
        for name, value in action.overrides.items():
            finite = math.isfinite(value) if isinstance(value, float) else value not in NON_FINITE
            if name in NUMERIC_BOUNDS and not finite:
                raise ControlError(f"{name}: {value} cannot be an override; give a finite number")
        payload = ACTION.encode(action)
        action = ACTION.decode(payload)
        entry = Entry(kind=EntryKind.OPERATOR, payload=payload, digest=digest(payload), received_at=self.clock())
        fold = _fold(action, {}, base_generation)
        _, outcome = self.store.append(action.job, entry, fold, config_if_new=self._default_config)
        return outcome

    def state(self, job: str) -> RunState:
        """The job's state, folded again where the stored one is another version's.

        Raises:
            UnknownJobError: there is no such job.
            UnreadableJobError: what is stored of it means nothing to this version.
        """
        state = cached(self.store.state(job))
        if state is not None:
            return state
        known = self.store.job(job)
        if not known.rows:
            return RunState.initial(job, config_of(job, known.config).mode)
        return self.rebuild(job)

    def stale(self) -> list[Job]:
        """Jobs whose ledger has to be folded again before their next step, newest first."""
        return [job for job in self.store.jobs() if job.rows and cached(self.store.state(job.name)) is None]

    def rebuild(self, job: str, watch: Callable[[Iterator[Entry]], Iterator[Entry]] = iter) -> RunState:
        """Fold the job's ledger again and keep the state; `watch` sees every entry go by. Raises as `state`."""

        def fold(past: Past) -> StoredState:
            return stored(restored(replace(past, state=None, entries=lambda: watch(past.entries())))[1])

        return RUN_STATE.decode(self.store.rebuild(job, fold).state)

    def dropped(self, job: str) -> int:
        """Summaries that the job's trainer has lost, as its last summary says. Raises `UnknownJobError`."""
        latest = self.store.latest_summary(job)
        record = None if latest is None else record_of(job, latest)
        return record.dropped_total if isinstance(record, StepSummary) else 0


def _fold(
    record: StepSummary | OperatorAction,
    observed: dict[str, float],
    base_generation: int | None = None,
) -> Fold[Outcome]:
    def fold(past: Past) -> Folded[Outcome]:
        settings, state = restored(past)
        if base_generation is not None and base_generation != state.generation:
            raise ApiError(
                HTTPStatus.CONFLICT,
                "base_generation",
                f"the controls are at generation {state.generation}; look at them again, then repeat the change",
                base_generation,
            )
        outcome = advance(settings, state, record)
        if isinstance(record, OperatorAction):
            check_agrees(state, outcome.state)
        return Folded(
            state=stored(outcome.state),
            events=tuple(map(_new_event, outcome.events)),
            signals=observed,
            result=outcome,
        )

    return fold


def _charted(summary: StepSummary) -> dict[str, float]:
    """The signals that were observed, and the trainer's own scalars beside them, under names that no signal has."""
    observed = {name: value for name, value in read_all(summary).items() if value is not None}
    return {**{name: value for name, value in summary.scalars.items() if name not in SIGNALS}, **observed}


def _new_event(event: Event) -> NewEvent:
    plain = json.loads(EVENT.encode(event))
    return NewEvent(
        kind=event.kind,
        attempt=event.attempt,
        step=event.step,
        message=event.message,
        detail=json.dumps(plain["detail"]),
    )


def _means(job: str, stored_config: str, config: AgentConfig) -> bool:
    """Whether stored settings are these, whichever version wrote them."""
    try:
        return config_of(job, stored_config) == config
    except UnreadableJobError:
        return False
