"""The imperative shell around the fold: inputs in, one transaction for as many as there are, answers out."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from trimtab.agent.advance import Outcome
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Mode, OperatorAction, OperatorVerb
from trimtab.api.folding import Committed, Folding, Input
from trimtab.api.portable import check_portable
from trimtab.api.problem import ApiError
from trimtab.api.restore import Live, UnreadableJobError, cached, caught_up, config_of, record_of, snapshot_of
from trimtab.hooks.controls import NUMERIC_BOUNDS, ControlError
from trimtab.hooks.records import Command, StepSummary, check_job
from trimtab.hooks.wire import NON_FINITE
from trimtab.storage.codec import ACTION, CONFIG, SUMMARY, digest
from trimtab.storage.database import Database
from trimtab.storage.store import Appended, Store
from trimtab.storage.values import Entry, EntryKind, Job, Origin, Past, StoredState

LOCAL = Origin()
"""Somebody on this machine, where nobody is asked who they are."""
_log = logging.getLogger("trimtab.api")
LIVE_JOBS = 2000
"""Jobs whose states are kept in memory, those that were heard of last."""


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

    Inputs of one job are handled one after another, in the order in which their transactions begin. States are kept in
    memory between them; where another process has written meanwhile, its rows are folded in first.
    """

    def __init__(
        self, database: Database, *, default_config: AgentConfig | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.database = database
        self.store = Store(database)
        self.clock = clock
        """Unix seconds; stored for people, never folded."""
        self.listeners: list[Callable[[Committed], None]] = []
        """Called with everything that is stored, in the order of each job's ledger, by whichever thread stored it."""
        self._default_config = CONFIG.encode(default_config or AgentConfig())
        self._writing = threading.Lock()
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._remembering = threading.Lock()

    @classmethod
    def open(cls, target: str | Path, *, default_config: AgentConfig | None = None) -> Service:
        """A service on a database URL or the path of an SQLite file, migrated. Raises `StorageError`."""
        database = Database(target)
        database.migrate()
        return cls(database, default_config=default_config)

    def close(self) -> None:
        """Keep the states as they are, so that the next start has little to fold, and close the database."""
        with self._writing:
            due = {job: snapshot_of(live) for job, live in self._live.items() if live.seq > live.kept}
            try:
                self.store.keep(due)
            except DBAPIError as error:  # the ledger has it all
                _log.warning("the states of %d jobs could not be kept: %s", len(due), error.orig)
            self._live.clear()
        self.database.close()

    def register(
        self,
        job: str,
        *,
        config: AgentConfig | None,
        mode: Mode | None,
        issuer: str,
        reason: str,
        origin: Origin = LOCAL,
    ) -> None:
        """Make sure that the job exists, with these settings and in this mode; None leaves what there is.

        Raises:
            RecordError: the name cannot name a job.
            ConfigFixedError: the job has a ledger that was folded with other settings.
            ApiError: the mode is another one, and to set it would take back the kill switch or let a locked agent act
                (409), which takes a decision of its own.
        """
        check_job(job)
        wanted = self._default_config if config is None else CONFIG.encode(config)
        self.store.register(
            job,
            wanted,
            self.clock(),
            keep=lambda known: config is None or _means(job, known, config),
            origin=origin,
            reason=reason,
        )
        if mode is not None and (state := self.state(job)).mode is not mode:
            _check_free(state, mode)
            action = OperatorAction(job=job, verb=OperatorVerb.SET_MODE, issuer=issuer, reason=reason, mode=mode)
            self.operate(action, origin=origin)

    def ingest(self, summary: StepSummary) -> Ingested:
        """Fold one summary in. A job that is not known is registered, in mode observe.

        Raises:
            RecordError: an integer is too large, or a string is no text.
            ConflictError: another summary holds the key (attempt, step, rank).
        """
        # What a replay will fold is folded: 1 and 1.0 are one number from here on.
        answer = self.commit([self.summary_input(SUMMARY.decode(SUMMARY.encode(summary)))])[0]
        if isinstance(answer, Exception):
            raise answer
        return ingested(answer)

    def operate(self, action: OperatorAction, *, base_generation: int | None = None, origin: Origin = LOCAL) -> Outcome:
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
        wanted = Input(job=action.job, entry=entry, origin=origin, record=action, base_generation=base_generation)
        answer = self.commit([wanted])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer[1]

    def summary_input(self, summary: StepSummary, *, origin: Origin = LOCAL) -> Input:
        """A summary, as it was decoded, on its way into the ledger.

        Raises:
            RecordError: an integer is too large, or a string is no text.
        """
        check_portable(summary)
        payload = SUMMARY.encode(summary)
        entry = Entry(
            kind=EntryKind.SUMMARY,
            payload=payload,
            digest=digest(payload),
            received_at=self.clock(),
            attempt=summary.attempt,
            step=summary.step,
            rank=summary.rank,
        )
        return Input(job=summary.job, entry=entry, origin=origin, record=summary)

    def commit(self, inputs: Sequence[Input]) -> list[tuple[Appended, Outcome] | Exception]:
        """Store and fold inputs in one transaction; what becomes of each, in their order.

        Raises:
            DBAPIError: the database does not answer; nothing was stored.
        """
        with self._writing:
            folding = Folding(self._live)
            answers = self.store.append(inputs, folding.begin, config_if_new=self._default_config)
            for job, live in folding.live.items():
                self._remember(job, live)
            for one in folding.stored:
                for listener in self.listeners:
                    listener(one)
        return answers

    def state(self, job: str) -> RunState:
        """The job's state.

        Raises:
            UnknownJobError: there is no such job.
            UnreadableJobError: what is stored of it means nothing to this version.
        """
        live = self.store.read(job, lambda past: caught_up(past, self._live.get(job)))
        self._remember(job, live)
        return live.state

    def current(self, job: str, seq: int) -> RunState | None:
        """The job's state after row `seq` of its ledger, where it is at hand: for those who look at many jobs.

        It never is for a job without a ledger, whose settings may yet change.
        """
        live = self._live.get(job)
        return live.state if live is not None and live.seq == seq > 0 else None

    def live(self) -> dict[str, RunState]:
        """States of the jobs that this process heard of last, each as of what it last stored of its job."""
        return {job: live.state for job, live in self._live.copy().items()}

    def stale(self) -> list[Job]:
        """Jobs whose whole ledger has to be folded again before their next step, newest first."""
        return [
            job
            for job in self.store.jobs()
            if job.rows and cached(self.store.read(job.name, lambda past: past.snapshot())) is None
        ]

    def rebuild(self, job: str, watch: Callable[[Iterator[Entry]], Iterator[Entry]] = iter) -> RunState:
        """Bring the job's state up to date and keep it; `watch` sees every entry go by. Raises as `state`."""
        kept = self._live.get(job)

        def fold(past: Past) -> StoredState:
            nonlocal kept
            kept = caught_up(past, kept, watch)
            return snapshot_of(kept)

        with self._writing:
            self.store.snapshot(job, fold)
            assert kept is not None
            self._remember(job, replace(kept, kept=kept.seq))
        return kept.state

    def dropped(self, job: str) -> int:
        """Summaries that the job's trainer has lost, as its last summary says. Raises `UnknownJobError`."""
        latest = self.store.latest_summary(job)
        record = None if latest is None else record_of(job, latest)
        return record.dropped_total if isinstance(record, StepSummary) else 0

    def _remember(self, job: str, live: Live) -> None:
        """Keep the state, unless a later one is known: whoever only reads may be overtaken."""
        with self._remembering:
            known = self._live.get(job)
            if known is None or known.settings != live.settings or known.seq <= live.seq:
                self._live[job] = live
            self._live.move_to_end(job)
            while len(self._live) > LIVE_JOBS:
                self._live.popitem(last=False)


def ingested(answer: tuple[Appended, Outcome]) -> Ingested:
    """What a trainer is told of its summary."""
    appended, outcome = answer
    if appended is Appended.STORED and outcome.ignored:
        return Ingested(result=Taken.IGNORED, reason=outcome.ignored, command=outcome.command)
    return Ingested(result=Taken(appended), reason="", command=outcome.command)


def _check_free(state: RunState, mode: Mode) -> None:
    held = "the kill switch is set" if state.killed else "its agent is locked out" if state.ladder.locked else ""
    if held:
        message = f"{held}, and to register a job does not undo it; set the mode itself, with a reason: "
        message += f"`trimtab mode {state.job} {mode} --reason WHY`, or PUT /v1/jobs/{state.job}/mode"
        raise ApiError(HTTPStatus.CONFLICT, "mode", message, mode)


def _means(job: str, stored_config: str, config: AgentConfig) -> bool:
    """Whether stored settings are these, whichever version wrote them."""
    try:
        return config_of(job, stored_config) == config
    except UnreadableJobError:
        return False
