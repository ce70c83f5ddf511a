"""A recorded job folded again, and compared with what was made of it at the time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from trimtab.agent.config import AgentConfig
from trimtab.agent.state import Event, EventKind
from trimtab.api.restore import beginning, cached, fold
from trimtab.storage.codec import EVENT, RUN_STATE
from trimtab.storage.values import Entry, Recorded

QUIET = {EventKind.VERDICT_CHANGED.value, EventKind.INCIDENT_PENDING.value}
"""Kinds that are no decision: a comparison of decisions leaves them out."""


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
    """None when every event and the stored state are the same."""
    gone: list[dict[str, Any]]
    """Decisions that were made at the time, and are not now; told apart by kind, attempt, step and what it is about."""
    added: list[dict[str, Any]]
    """Decisions that are made now, and were not at the time."""
    state_compared: bool
    """False where none is stored of the last row, as while the service is at work, or only one of another version: then
    the events alone were compared."""
    first: int = 1
    """The ledger row that the replay began with: what the summaries before it said is gone."""
    relearnt: bool = False
    """The state before that row is another version's: it was begun from what every version can read, and so nothing has
    to be as it was."""


def refolded(
    recorded: Recorded, config: AgentConfig, watch: Callable[[Iterable[Entry]], Iterable[Entry]] = iter
) -> Refolded:
    """Fold the ledger again under `config` and compare; `watch` sees every entry go by.

    Raises:
        UnreadableJobError: an entry means nothing to this version.
    """
    base, now = recorded.base, []
    first = 1 if base is None else base.seq + 1
    initial = beginning(recorded.job, config, base)
    then = recorded.state if recorded.state and recorded.state.schema == RUN_STATE.schema else None
    compared = None
    for seq, outcome in enumerate(fold(config, initial, watch(recorded.entries)), start=first):
        if then is not None and seq == then.seq:
            compared = outcome.state
        now += [_plain(event) for event in outcome.events]
    stored = [{name: getattr(event, name) for name in _NAMES} for event in recorded.events if event.seq >= first]
    difference = _event_difference(stored, now)
    if difference is None and then is not None and compared is not None:
        difference = _first(json.loads(then.state), json.loads(RUN_STATE.encode(compared)), "state")
    return Refolded(
        job=recorded.job,
        entries=len(recorded.entries),
        events=now,
        difference=difference,
        gone=_without(stored, now),
        added=_without(now, stored),
        state_compared=compared is not None,
        first=first,
        relearnt=base is not None and cached(base) is None,
    )


_NAMES = ("kind", "attempt", "step", "message", "detail")


def _plain(event: Event) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(EVENT.encode(event))
    return {name: data[name] for name in _NAMES}


def _event_difference(stored: list[dict[str, Any]], replayed: list[dict[str, Any]]) -> Difference | None:
    for number, (then, now) in enumerate(zip(stored, replayed, strict=False), start=1):
        if found := _first(then, now, f"event {number}"):
            return found
    if len(stored) != len(replayed):
        return Difference(where="number of events", stored=len(stored), replayed=len(replayed))
    return None


def _without(events: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The decisions among `events` that have no counterpart among `others`."""
    left = Counter(map(_about, others))
    found = []
    for event in events:
        if event["kind"] in QUIET:
            continue
        if left[_about(event)]:
            left[_about(event)] -= 1
        else:
            found.append(event)
    return found


def _about(event: dict[str, Any]) -> tuple[Any, ...]:
    detail = event["detail"]
    what = [str(detail.get(name, "")) for name in ("fingerprint", "remedy", "verb")]
    return event["kind"], event["attempt"], event["step"], *what


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
