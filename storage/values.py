"""What goes into the store and what comes out of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class EntryKind(StrEnum):
    """What a ledger row holds."""

    SUMMARY = "summary"
    OPERATOR = "operator"


class ValueKind(StrEnum):
    """Kind of a number, for JSON, which has no word for those that are not finite."""

    FINITE = "finite"
    NAN = "nan"
    POSITIVE_INFINITY = "+inf"
    NEGATIVE_INFINITY = "-inf"

    @classmethod
    def of(cls, value: float) -> ValueKind:
        """The kind of `value`."""
        if math.isfinite(value):
            return cls.FINITE
        if math.isnan(value):
            return cls.NAN
        return cls.POSITIVE_INFINITY if value > 0 else cls.NEGATIVE_INFINITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A registered job."""

    name: str
    config: str
    """JSON of the agent's settings for this job."""
    created_at: float
    """Unix seconds."""
    rows: int
    """Rows in its ledger."""
    last_received_at: float | None
    """When its newest summary came: that of rank 0, of the newest step of the newest attempt. Unix seconds."""
    archived_at: float | None = None
    """Unix seconds; None while it is among the jobs that are watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One input of the fold, before or after it is in the ledger."""

    kind: EntryKind
    payload: str
    """JSON of the summary or the operator's action; empty where it is gone, and only the key is left."""
    digest: str
    received_at: float
    """Unix seconds."""
    attempt: int | None = None
    """With `step` and `rank` the key of a summary; None for an action."""
    step: int | None = None
    rank: int | None = None
    seq: int = 0
    """Place in the job's ledger, from 1; 0 before it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who asked for something, for the audit trail."""

    actor: str = "local"
    """Name of the token, `local` where the service has none, `agent` for the agent itself."""
    token: str = ""
    """Its id; empty without one."""
    ip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """A snapshot of a job's state: a cache of the fold."""

    state: str
    """JSON."""
    schema: str
    """Schema that the JSON is of (`trimtab.storage.codec.Codec.schema`); a state of another one is no state."""
    seq: int
    """The ledger row after which the state was this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base(StoredState):
    """Where a ledger begins whose summaries up to row `seq` have lost their contents."""

    essentials: str
    """JSON of `trimtab.agent.essentials.Essentials`, which every later version can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the next entry of a job is folded into: the state after row `seq` of its ledger, by way of a snapshot or of
    a state that the caller still has. Its methods are to be called within the transaction only."""

    job: str
    config: str
    """JSON of the settings."""
    seq: int
    """Place of the last ledger row; 0 before the first."""
    snapshot: Callable[[], StoredState | None]
    """The newest snapshot; None where there is none."""
    base: Callable[[], Base | None]
    """Where the ledger begins; None where it is whole."""
    entries: Callable[[int], Iterator[Entry]]
    """Reads the ledger behind row n, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One row of the audit trail."""

    number: int
    """Place in the job's trail, from 1: the cursor of pagination."""
    seq: int
    """The ledger row that caused it."""
    kind: str
    attempt: int
    step: int
    message: str
    detail: dict[str, Any]
    """Plain JSON data: non-finite numbers are strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event that is about to be stored."""

    kind: str
    attempt: int
    step: int
    message: str
    detail: str
    """JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded(Generic[Result]):
    """What folding one entry in produced: everything that is written in the entry's own transaction."""

    events: tuple[NewEvent, ...]
    signals: dict[str, float]
    """By name, at the entry's (attempt, step); empty for an action."""
    result: Result
    """Handed back to the caller once the transaction is committed."""
    snapshot: StoredState | None = None
    """After the entry, where one is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An entry on its way into a job's ledger."""

    job: str
    entry: Entry
    origin: Origin = Origin()


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSeries:
    """One signal over the steps of one attempt, ascending; non-finite values are in `values` as they are."""

    name: str
    attempt: int
    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One job as it was recorded: the inputs, and what was made of them at the time."""

    job: str
    config: str
    """JSON of the settings."""
    entries: tuple[Entry, ...]
    """Those behind the base."""
    events: tuple[StoredEvent, ...]
    state: StoredState | None
    """The newest snapshot, which need not be of the last entry; None where there is none."""
    base: Base | None = None
    """Where the ledger begins; None where it is whole."""
