"""A recorded job folded again, and compared with what was made of it at the time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trimtab.agent.config import AgentConfig
from trimtab.agent.replay import replay
from trimtab.agent.state import Event, OperatorAction
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import ACTION, CONFIG, EVENT, RUN_STATE, SUMMARY
from trimtab.storage.values import EntryKind, Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where two folds part."""

    where: str
    """`event 3: detail.score`, `state: generation`, or `events` when one has more."""
    stored: Any
    replayed: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Refolded:
    """What the replay made of a ledger."""

    job: str
    entries: int
    events: list[dict[str, Any]]
    """Plain JSON data, in order: kind, attempt, step, message, detail."""
    difference: Difference | None
    """None when every event and the last state are the same."""


def config_of(recorded: Recorded) -> AgentConfig:
    """The settings that the job was folded with."""
    return CONFIG.decode(recorded.config)


def refolded(recorded: Recorded, config: AgentConfig) -> Refolded:
    """Fold the ledger again under `config` and compare.

    Raises:
        ValueError: the ledger is empty.
    """
    state, events = replay(config, _records(recorded))
    now = [_plain(event) for event in events]
    return Refolded(
        job=recorded.job,
        entries=len(recorded.entries),
        events=now,
        difference=_difference(recorded, now, json.loads(RUN_STATE.encode(state))),
    )


def _records(recorded: Recorded) -> Iterator[StepSummary | OperatorAction]:
    for entry in recorded.entries:
        codec: Any = SUMMARY if entry.kind is EntryKind.SUMMARY else ACTION
        yield codec.decode(entry.payload)


def _plain(event: Event) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(EVENT.encode(event))
    return {name: data[name] for name in ("kind", "attempt", "step", "message", "detail")}


def _difference(recorded: Recorded, events: list[dict[str, Any]], state: Any) -> Difference | None:
    for number, (stored, now) in enumerate(zip(recorded.events, events, strict=False), start=1):
        then = {name: getattr(stored, name) for name in now}
        if found := _first(then, now, f"event {number}"):
            return found
    if len(recorded.events) != len(events):
        return Difference(where="number of events", stored=len(recorded.events), replayed=len(events))
    return _first(None if recorded.state is None else json.loads(recorded.state), state, "state")


def _first(stored: Any, now: Any, where: str) -> Difference | None:
    """The first leaf, in key order, where two trees of JSON data differ."""
    if isinstance(stored, dict) and isinstance(now, dict):
        for name in sorted(stored.keys() | now.keys()):
            if found := _first(stored.get(name), now.get(name), f"{where}.{name}"):
                return found
        return None
    if isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        for place, (a, b) in enumerate(zip(stored, now, strict=True)):
            if found := _first(a, b, f"{where}[{place}]"):
                return found
        return None
    return None if stored == now else Difference(where=where, stored=stored, replayed=now)
