"""Inputs folded within one transaction, and the states that hold once it is committed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from trimtab.agent.advance import Outcome, advance
from trimtab.agent.operator import check_agrees
from trimtab.agent.run_state import RunState
from trimtab.agent.signals import SIGNALS
from trimtab.agent.state import Event, OperatorAction
from trimtab.api.problem import ApiError
from trimtab.api.restore import Live, caught_up, snapshot_of
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import EVENT
from trimtab.storage.store import Fold
from trimtab.storage.values import Arrival, Folded, NewEvent, Past

SNAPSHOT_EVERY = 64
"""Ledger rows between two snapshots of a job's state: what a restart folds again, at a millisecond each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input(Arrival):
    """A summary or a person's action on its way into the ledger."""

    record: StepSummary | OperatorAction
    """What the entry's payload says."""
    base_generation: int | None = None
    """The generation that a person's change was worked out against; None for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """An input that is stored for good."""

    record: StepSummary | OperatorAction
    events: tuple[Event, ...]


@dataclass(slots=True)
class Folding:
    """Inputs of one transaction, which become true only when it is committed.

    Where the transaction is undone and made again, it begins again, and knows nothing of the first time.
    """

    known: Mapping[str, Live]
    """States from before the transaction."""
    live: dict[str, Live] = field(default_factory=dict)
    """Those after it, of the jobs that it changes."""
    stored: list[Committed] = field(default_factory=list)

    def begin(self) -> Fold[Input, Outcome]:
        """What folds the inputs of a transaction that begins."""
        self.live.clear()
        self.stored.clear()
        return self.fold

    def fold(self, past: Past, arrival: Input, is_new: bool) -> Folded[Outcome]:
        """What the input leads to.

        Raises:
            UnreadableJobError: what is stored of the job means nothing to this version.
            ControlError, OperatorError: a person's decision that cannot be taken.
            ApiError: the controls are at another generation than a person's change was worked out against (409).
        """
        live = caught_up(past, self.live.get(past.job) or self.known.get(past.job))
        record = arrival.record
        _check_generation(live.state, arrival.base_generation)
        outcome = advance(live.config, live.state, record)
        if isinstance(record, OperatorAction):
            check_agrees(live.state, outcome.state)
        if not is_new:
            return Folded(events=(), signals={}, result=outcome)
        after = replace(live, state=outcome.state, seq=past.seq + 1)
        due = after.seq - after.kept >= SNAPSHOT_EVERY
        folded = Folded(
            events=tuple(map(_new_event, outcome.events)),
            signals=_charted(record, outcome.signals) if isinstance(record, StepSummary) else {},
            result=outcome,
            snapshot=snapshot_of(after) if due else None,
        )
        self.live[past.job] = replace(after, kept=after.seq) if due else after
        self.stored.append(Committed(record=record, events=outcome.events))
        return folded


def _check_generation(state: RunState, base: int | None) -> None:
    if base is not None and base != state.generation:
        raise ApiError(
            HTTPStatus.CONFLICT,
            "base_generation",
            f"the controls are at generation {state.generation}; look at them again, then repeat the change",
            base,
        )


def _charted(summary: StepSummary, signals: Mapping[str, float | None]) -> dict[str, float]:
    """The signals that were observed, and the trainer's own scalars beside them, under names that no signal has."""
    observed = {name: value for name, value in signals.items() if value is not None}
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
