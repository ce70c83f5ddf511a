"""Changes of the overrides: the one place where the generation grows, whoever asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trimtab.agent.run_state import Ladder, Rung, RunState
from trimtab.agent.state import Event, EventKind, Proposal
from trimtab.hooks.controls import ControlValue

AGENT = "agent"
BUDGET_STEPS = 1000
"""Span over which actions are counted."""


def event(state: RunState, kind: EventKind, message: str, **detail: Any) -> Event:
    """An audit row at the state's newest step."""
    return Event(kind=kind, attempt=state.attempt, step=max(state.last_step, 0), detail=detail, message=message)


def changed(
    state: RunState,
    *,
    ladder: Ladder,
    person_overrides: dict[str, ControlValue],
    issuer: str,
    reason: str,
    **detail: Any,
) -> tuple[RunState, tuple[Event, ...]]:
    """The state with other overrides, one generation on. Proposals made against the generation before are withdrawn."""
    before = state.overrides
    withdrawn = tuple(_withdrawal(state, proposal, "the controls changed") for proposal in state.proposals)
    after = replace(
        state,
        ladder=ladder,
        person_overrides=person_overrides,
        generation=state.generation + 1,
        issuer=issuer,
        reason=reason,
        proposals=(),
    )
    row = event(
        after,
        EventKind.CONTROLS_CHANGED,
        reason,
        generation=after.generation,
        issuer=issuer,
        before=dict(before),
        after=dict(after.overrides),
        **detail,
    )
    return after, (*withdrawn, row)


def climbed(ladder: Ladder, tick: int, rung: Rung) -> Ladder:
    """The ladder one remedy higher."""
    return _acted(replace(ladder, rungs=(*ladder.rungs, rung), blocked=None, calm=0), tick)


def descended(ladder: Ladder, tick: int) -> Ladder:
    """The ladder without its newest remedy."""
    return _acted(replace(ladder, rungs=ladder.rungs[:-1], blocked=None, calm=0), tick)


def _acted(ladder: Ladder, tick: int) -> Ladder:
    recent = tuple(past for past in ladder.actions if past > tick - BUDGET_STEPS)
    return replace(ladder, actions=(*recent, tick))


def without(state: RunState, proposal: Proposal, why: str) -> tuple[RunState, tuple[Event, ...]]:
    """The state with a proposal withdrawn."""
    rest = tuple(other for other in state.proposals if other.id != proposal.id)
    return replace(state, proposals=rest), (_withdrawal(state, proposal, why),)


def _withdrawal(state: RunState, proposal: Proposal, why: str) -> Event:
    return event(state, EventKind.WITHDRAWN, why, proposal=proposal.id, remedy=proposal.remedy)


def enacted(state: RunState, proposal: Proposal, *, issuer: str) -> tuple[RunState, tuple[Event, ...]]:
    """The state with a proposal carried out: a remedy added, or, where it is already in force, taken back."""
    held = [rung.remedy for rung in state.ladder.rungs]
    if proposal.remedy in held:
        ladder = descended(state.ladder, state.tick)
    else:
        before = state.overrides
        added = {name: value for name, value in proposal.overrides.items() if before.get(name) != value}
        rung = Rung(
            remedy=proposal.remedy,
            overrides=added,
            incident=proposal.incident,
            generation=state.generation + 1,
        )
        ladder = climbed(state.ladder, state.tick, rung)
    rest = tuple(other for other in state.proposals if other.id != proposal.id)
    return changed(
        replace(state, proposals=rest),
        ladder=ladder,
        person_overrides=state.person_overrides,
        issuer=issuer,
        reason=proposal.reason,
        remedy=proposal.remedy,
        rung=proposal.rung,
        incident=proposal.incident,
        proposal=proposal.id,
    )
