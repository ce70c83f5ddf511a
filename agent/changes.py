"""Changes of the overrides: the one place where the generation grows, whoever asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trimtab.agent.run_state import Ladder, Rung, RunState
from trimtab.agent.state import Direction, Event, EventKind, Proposal

AGENT = "agent"
BUDGET_STEPS = 1000
"""Span over which actions are counted."""


def event(state: RunState, kind: EventKind, message: str, **detail: Any) -> Event:
    """An audit row at the state's newest step."""
    return Event(kind=kind, attempt=state.attempt, step=max(state.last_step, 0), detail=detail, message=message)


def changed(
    before: RunState, after: RunState, *, issuer: str, reason: str, **detail: Any
) -> tuple[RunState, tuple[Event, ...]]:
    """`after`, which wants other overrides than `before`, one generation on. Standing proposals, made against the
    generation before, are withdrawn."""
    after, withdrawn = outdated(after)
    after = replace(after, generation=before.generation + 1, unheeded=0, issuer=issuer, reason=reason)
    row = event(
        after,
        EventKind.CONTROLS_CHANGED,
        reason,
        generation=after.generation,
        issuer=issuer,
        before=before.overrides,
        after=after.overrides,
        **detail,
    )
    return after, (*withdrawn, row)


def outdated(state: RunState) -> tuple[RunState, tuple[Event, ...]]:
    """The state without its proposals, which were made against another generation."""
    rows = tuple(_withdrawal(state, proposal, "the controls changed") for proposal in state.proposals)
    return replace(state, proposals=()), rows


def climbed(ladder: Ladder, tick: int, rung: Rung) -> Ladder:
    """The ladder one remedy higher."""
    return _acted(ladder, tick, (*ladder.rungs, rung))


def descended(ladder: Ladder, tick: int) -> Ladder:
    """The ladder without its newest remedy."""
    return _acted(ladder, tick, ladder.rungs[:-1])


def _acted(ladder: Ladder, tick: int, rungs: tuple[Rung, ...]) -> Ladder:
    recent = tuple(past for past in ladder.actions if past > tick - BUDGET_STEPS)
    return Ladder(rungs=rungs, refused=ladder.refused, actions=(*recent, tick))


def without(state: RunState, proposal: Proposal, why: str) -> tuple[RunState, tuple[Event, ...]]:
    """The state with a proposal withdrawn."""
    rest = tuple(other for other in state.proposals if other.id != proposal.id)
    return replace(state, proposals=rest), (_withdrawal(state, proposal, why),)


def _withdrawal(state: RunState, proposal: Proposal, why: str) -> Event:
    return event(state, EventKind.WITHDRAWN, why, proposal=proposal.id, remedy=proposal.remedy)


def enacted(state: RunState, proposal: Proposal, *, issuer: str) -> tuple[RunState, tuple[Event, ...]]:
    """The state with a proposal carried out: a remedy added, or the newest taken back."""
    if proposal.direction is Direction.RELAX:
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
        state,
        replace(state, ladder=ladder, proposals=rest),
        issuer=issuer,
        reason=proposal.reason,
        direction=proposal.direction.value,
        remedy=proposal.remedy,
        rung=proposal.rung,
        incident=proposal.incident,
        proposal=proposal.id,
    )
