"""What happens to a job, counted as it is stored: non-finite values and changes of the controls.

Each process counts what it stored itself, so that with several the sum over them is right. A process that starts counts
from 0, which `rate` and `increase` know how to read.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from trimtab.agent.changes import AGENT
from trimtab.agent.remedies import REMEDIES
from trimtab.agent.state import Direction, Event, EventKind
from trimtab.api.folding import Committed
from trimtab.hooks.layout import TENSORS
from trimtab.hooks.records import StepSummary

KINDS = {"nan": "nan", "posinf": "+inf", "neginf": "-inf", "invalid": "invalid"}
"""Label by field of `NonFinite`; what stands outside the loss mask is no harm."""
OUTCOMES = {
    EventKind.PROPOSED: "proposed",
    EventKind.APPROVED: "approved",
    EventKind.REJECTED: "rejected",
    EventKind.REFUSED: "refused",
    EventKind.WITHDRAWN: "withdrawn",
    EventKind.CHANGE_UNHARMFUL: "unharmful",
    EventKind.CHANGE_INCONCLUSIVE: "inconclusive",
    EventKind.CHANGE_HARMFUL: "harmful",
    EventKind.ROLLED_BACK: "rolled_back",
    EventKind.KILLED: "issued",
}
"""Label by kind of event. A change of the controls that no other event tells of is `issued`, or `relaxed`."""
BY_HAND, KILL, ANY = "by_hand", "kill", "any"
"""Actions that are no remedies: what a person set, the kill switch, and whatever could have been tried."""
_WITHOUT_REMEDY = {EventKind.KILLED: KILL, EventKind.REFUSED: ANY}

Key: TypeAlias = tuple[str, str, str]
"""Job, and the values of two more labels."""


class JobCounts:
    """Counters of the jobs that this process has stored something of."""

    def __init__(self) -> None:
        self._nonfinite: Counter[Key] = Counter()
        """By job, tensor and kind."""
        self._actions: Counter[Key] = Counter()
        """By job, action and outcome."""
        self._lock = threading.Lock()

    def take(self, committed: Committed) -> None:
        """Count what was stored."""
        record = committed.record
        with self._lock:
            if isinstance(record, StepSummary):
                for tensor, counts in record.nonfinite.items():
                    name = tensor if tensor in TENSORS else "other"
                    for field, kind in KINDS.items():
                        if found := getattr(counts, field):
                            self._nonfinite[record.job, name, kind] += found
            for action, outcome in actions(committed.events):
                self._actions[record.job, action, outcome] += 1

    def nonfinite(self) -> list[tuple[Key, int]]:
        """Non-finite values by job, tensor and kind."""
        with self._lock:
            return list(self._nonfinite.items())

    def actions(self) -> list[tuple[Key, int]]:
        """Events of remedies by job, action and outcome."""
        with self._lock:
            return list(self._actions.items())

    def keep(self, jobs: Collection[str]) -> None:
        """Forget all other jobs."""
        with self._lock:
            for counts in (self._nonfinite, self._actions):
                for key in [key for key in counts if key[0] not in jobs]:
                    del counts[key]


def actions(events: Sequence[Event]) -> Iterable[tuple[str, str]]:
    """Action and outcome of each event that is about a change of the controls."""
    killed = any(event.kind is EventKind.KILLED for event in events)
    for event in events:
        remedy = event.detail.get("remedy", "")
        action = remedy if remedy in REMEDIES else _WITHOUT_REMEDY.get(event.kind, BY_HAND)
        if event.kind in OUTCOMES:
            yield action, OUTCOMES[event.kind]
        elif event.kind is EventKind.CONTROLS_CHANGED and not killed:
            direction = event.detail.get("direction")
            if direction is not None:
                yield action, "relaxed" if direction == Direction.RELAX else "issued"
            elif event.detail.get("issuer") != AGENT:  # of the agent's own, the others take a change back
                yield BY_HAND, "issued"
