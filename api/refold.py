"""A recorded job folded again, and compared with what was made of it at the time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Event
from trimtab.api.restore import fold
from trimtab.storage.codec import EVENT, RUN_STATE
from trimtab.storage.values import Entry, Recorded


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
    state_compared: bool
    """False where the stored state is of another version, or there is none: then only the events were compared."""


def refolded(
    recorded: Recorded, config: AgentConfig, watch: Callable[[Iterable[Entry]], Iterable[Entry]] = iter
) -> Refolded:
    """Fold the ledger again under `config` and compare; `watch` sees every entry go by.

    Raises:
        UnreadableJobError: an entry means nothing to this version.
    """
    state, now = RunState.initial(recorded.job, config.mode), []
    for outcome in fold(config, recorded.job, watch(recorded.entries)):
        state = outcome.state
        now += [_plain(event) for event in outcome.events]
    then = recorded.state if recorded.state and recorded.state.schema == RUN_STATE.schema else None
    difference = _event_difference(recorded, now)
    if difference is None and then is not None:
        difference = _first(json.loads(then.state), json.loads(RUN_STATE.encode(state)), "state")
    return Refolded(
        job=recorded.job,
        entries=len(recorded.entries),
        events=now,
        difference=difference,
        state_compared=then is not None,
    )


def _plain(event: Event) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(EVENT.encode(event))
    return {name: data[name] for name in ("kind", "attempt", "step", "message", "detail")}


def _event_difference(recorded: Recorded, events: list[dict[str, Any]]) -> Difference | None:
    for number, (stored, now) in enumerate(zip(recorded.events, events, strict=False), start=1):
        then = {name: getattr(stored, name) for name in now}
        if found := _first(then, now, f"event {number}"):
            return found
    if len(recorded.events) != len(events):
        return Difference(where="number of events", stored=len(recorded.events), replayed=len(events))
    return None


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
