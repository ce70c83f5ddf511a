"""A job's settings and state out of what is stored.

The state is a snapshot with the rest of the ledger folded in, and a snapshot is a cache. One of another schema was left
by another version of the program, and the whole ledger is folded again in its place, or what is left of it from its
base on; so the ledger alone has to stay readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pydantic import ValidationError

from trimtab.agent.advance import Outcome
from trimtab.agent.config import AgentConfig
from trimtab.agent.replay import replay
from trimtab.agent.run_state import RunState
from trimtab.agent.state import OperatorAction
from trimtab.api.errors import UserError
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import ACTION, CONFIG, ESSENTIALS, RUN_STATE, SUMMARY
from trimtab.storage.values import Base, Entry, EntryKind, Past, StoredState

FAR = 512
"""Ledger rows by which a state that is known may lie behind: a snapshot is nearer, and contents may be gone by then."""


class UnreadableJobError(UserError):
    """What is stored of a job means nothing to this version; the message names the job and the remedy."""

    def __init__(self, job: str, what: str, error: ValidationError) -> None:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][1:]))
        super().__init__(
            f"job {job!r}: {what}, which another version of trimtab stored, cannot be read by this one "
            f"({where + ': ' if where else ''}{first['msg']}); run that version, or start a job of another name"
        )
        self.job = job


def config_of(job: str, config: str) -> AgentConfig:
    """The settings in the JSON `config` of a job. Raises `UnreadableJobError`."""
    try:
        return CONFIG.decode(config)
    except ValidationError as error:
        raise UnreadableJobError(job, "its settings", error) from error


def record_of(job: str, entry: Entry) -> StepSummary | OperatorAction:
    """The record that a ledger row of a job holds. Raises `UnreadableJobError`."""
    try:
        return SUMMARY.decode(entry.payload) if entry.kind is EntryKind.SUMMARY else ACTION.decode(entry.payload)
    except ValidationError as error:
        raise UnreadableJobError(job, f"entry {entry.seq} of its ledger", error) from error


def fold(config: AgentConfig, state: RunState, entries: Iterable[Entry]) -> Iterator[Outcome]:
    """What each entry of a ledger leads to, in order, from a state on. Raises `UnreadableJobError`."""
    return replay(config, state, (record_of(state.job, entry) for entry in entries))


def cached(stored: StoredState | None) -> RunState | None:
    """The stored state, or None where it is of another schema, or is damaged."""
    if stored is None or stored.schema != RUN_STATE.schema:
        return None
    try:
        return RUN_STATE.decode(stored.state)
    except ValidationError:
        return None


def beginning(job: str, config: AgentConfig, base: Base | None) -> RunState:
    """The state that a job's ledger begins with: where it is not whole, that of its base, or the essentials of a base
    whose schema is another version's. Raises `UnreadableJobError`."""
    if base is None:
        return RunState.initial(job, config.mode)
    state = cached(base)
    if state is not None:
        return state
    try:
        return ESSENTIALS.decode(base.essentials).state(job)
    except ValidationError as error:
        raise UnreadableJobError(job, "the base of its ledger", error) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A job's settings and its state after a row of its ledger."""

    settings: str
    """JSON of `config`."""
    config: AgentConfig
    state: RunState
    seq: int
    """The row; 0 before the first."""
    kept: int
    """The row that the newest snapshot is of; 0 without one."""


def caught_up(past: Past, known: Live | None, watch: Callable[[Iterator[Entry]], Iterator[Entry]] = iter) -> Live:
    """The job as it is now: what is `known` of it, or a snapshot, with the rest of the ledger folded in.

    `watch` sees every entry go by. Raises `UnreadableJobError`.
    """
    if known is None or known.settings != past.config or not 0 <= past.seq - known.seq <= FAR:
        config = config_of(past.job, past.config)
        snapshot = past.snapshot() if past.seq else None
        state, seq = cached(snapshot), snapshot.seq if snapshot is not None else 0
        kept = seq
        if state is None:
            base, kept = past.base(), 0
            state, seq = beginning(past.job, config, base), base.seq if base is not None else 0
        known = Live(settings=past.config, config=config, state=state, seq=seq, kept=kept)
    if known.seq == past.seq:
        return known
    state = known.state
    for outcome in fold(known.config, state, watch(past.entries(known.seq))):
        state = outcome.state
    return replace(known, state=state, seq=past.seq)


def snapshot_of(live: Live) -> StoredState:
    """The state as it is stored."""
    return StoredState(state=RUN_STATE.encode(live.state), schema=RUN_STATE.schema, seq=live.seq)
