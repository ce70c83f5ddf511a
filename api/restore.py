"""A job's settings and state out of what is stored.

The stored state is a cache. One of another schema was left by another version of the program, and the ledger is folded
again in its place; so the ledger alone has to stay readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def fold(config: AgentConfig, job: str, entries: Iterable[Entry]) -> Iterator[Outcome]:
    """What each entry of a ledger leads to, in order. Raises `UnreadableJobError`."""
    return replay(config, job, (record_of(job, entry) for entry in entries))


def cached(stored: StoredState | None) -> RunState | None:
    """The stored state, or None where it is of another schema, or is damaged."""
    if stored is None or stored.schema != RUN_STATE.schema:
        return None
    try:
        return RUN_STATE.decode(stored.state)
    except ValidationError:
        return None


def restored(past: Past) -> tuple[AgentConfig, RunState]:
    """The settings and the state of a job. Raises `UnreadableJobError`."""
    config = config_of(past.job, past.config)
    state = cached(past.state)
    if state is None:
        state = RunState.initial(past.job, config.mode)
        for outcome in fold(config, past.job, past.entries()):
            state = outcome.state
    return config, state


def stored(state: RunState) -> StoredState:
    """The state as it is stored."""
    return StoredState(state=RUN_STATE.encode(state), schema=RUN_STATE.schema)
