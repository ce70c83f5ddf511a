"""A job's settings and state out of what is stored.

The state is a snapshot with the rest of the ledger folded in, and a snapshot is a cache. One of another schema was left
by another version of the program, and the whole ledger is folded again in its place; so the ledger alone has to stay
readable.
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
from trimtab.storage.codec import ACTION, CONFIG, RUN_STATE, SUMMARY
from trimtab.storage.values import Entry, EntryKind, Past, StoredState


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
    if known is None or known.settings != past.config or known.seq > past.seq:
        config = config_of(past.job, past.config)
        snapshot = past.snapshot() if past.seq else None
        state = cached(snapshot)
        seq = snapshot.seq if snapshot is not None and state is not None else 0
        state = state or RunState.initial(past.job, config.mode)
        known = Live(settings=past.config, config=config, state=state, seq=seq, kept=seq)
    if known.seq == past.seq:
        return known
    state = known.state
    for outcome in fold(known.config, state, watch(past.entries(known.seq))):
        state = outcome.state
    return replace(known, state=state, seq=past.seq)


def snapshot_of(live: Live) -> StoredState:
    """The state as it is stored."""
    return StoredState(state=RUN_STATE.encode(live.state), schema=RUN_STATE.schema, seq=live.seq)
