"""Changes of the overrides: the one place where the generation grows, whoever asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.agent.canary import Canary, Undo
from trimtab.agent.detector import Role
from trimtab.agent.incidents import alarming
from trimtab.agent.run_state import Ladder, RunState
from trimtab.agent.rung import Rung
from trimtab.agent.state import Direction, Event, EventKind, Proposal
from trimtab.agent.values import replace
from trimtab.hooks.controls import ControlValue

AGENT = "agent"
BUDGET_STEPS = 1000
"""Span over which actions are counted."""

Decision = tuple[RunState, tuple[Event, ...]]


def event(state: RunState, kind: EventKind, message: str, **detail: Any) -> Event:
    """An audit row at the state's newest step."""
    return Event(kind=kind, attempt=state.attempt, step=max(state.last_step, 0), detail=detail, message=message)


def stated(before: RunState, after: RunState, *, issuer: str, reason: str) -> RunState:
    """`after`, one generation on from `before`."""
    return replace(after, generation=before.generation + 1, unheeded=0, issuer=issuer, reason=reason)


def changed(before: RunState, after: RunState, *, issuer: str, reason: str, **detail: Any) -> Decision:
    """`after`, which wants other overrides than `before`. Standing proposals, made against the generation before, are
    withdrawn, and a change that was being watched is watched no more."""
    after, withdrawn = outdated(after)
    after = stated(before, replace(after, canary=None), issuer=issuer, reason=reason)
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


def watched_change(
    before: RunState,
    after: RunState,
    *,
    issuer: str,
    reason: str,
    remedy: str = "",
    since_step: int | None = None,
    **detail: Any,
) -> Decision:
    """As `changed`, and the change is watched for harm once it is in effect, against the steps from `since_step` on."""
    named = {"remedy": remedy} if remedy else {}
    after, events = changed(before, after, issuer=issuer, reason=reason, **named, **detail)
    steps = 0 if since_step is None else max(before.last_step - since_step + 1, 1)  # 0 takes all there are
    canary = Canary(
        generation=after.generation,
        issuer=issuer,
        remedy=remedy,
        undo=Undo(rungs=before.ladder.rungs, adopted=before.adopted, person=before.person_overrides),
        before={name: values[-steps:] for name, values in before.history.items()},
        harmed_before=bool(alarming(before.incidents, Role.HARM)),
        broken_before=bool(alarming(before.incidents, Role.INPUT)),
    )
    return replace(after, canary=canary), events


def relaxed(rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    """The remedies without the newest."""
    return tuple(replace(rung, overrides=without_restore(rung.overrides)) for rung in rungs[:-1])


def without_restore(overrides: Mapping[str, ControlValue]) -> dict[str, ControlValue]:
    """The overrides but for a restore: one that was carried out long ago must not be asked for again."""
    return {name: value for name, value in overrides.items() if name != "restore"}


def outdated(state: RunState) -> Decision:
    """The state without its proposals, which were made against another generation."""
    rows = tuple(_withdrawal(state, proposal, "the controls changed") for proposal in state.proposals)
    return replace(state, proposals=()), rows


def spent(state: RunState) -> int:
    """Actions on account in the last `BUDGET_STEPS` steps."""
    return len(recent(state.ladder.actions, state.tick))


def recent(ticks: tuple[int, ...], tick: int) -> tuple[int, ...]:
    """Those of the last `BUDGET_STEPS` steps."""
    return tuple(past for past in ticks if past > tick - BUDGET_STEPS)


def acted(ladder: Ladder, tick: int) -> Ladder:
    """The ladder with one more action on its account, and a new count of harm."""
    return replace(ladder, actions=(*recent(ladder.actions, tick), tick), blocked=None, calm=0, harmed=0, trough=None)


def without(state: RunState, proposal: Proposal, why: str) -> Decision:
    """The state with a proposal withdrawn."""
    rest = tuple(other for other in state.proposals if other.id != proposal.id)
    return replace(state, proposals=rest), (_withdrawal(state, proposal, why),)


def _withdrawal(state: RunState, proposal: Proposal, why: str) -> Event:
    return event(state, EventKind.WITHDRAWN, why, proposal=proposal.id, remedy=proposal.remedy)


def enacted(state: RunState, proposal: Proposal, *, issuer: str) -> Decision:
    """The state with a proposal carried out: a remedy added, or the newest taken back."""
    ladder, since = acted(state.ladder, state.tick), None
    if proposal.direction is Direction.RELAX:
        ladder = replace(ladder, rungs=relaxed(ladder.rungs))
    else:
        since = state.incidents[proposal.incident].since_step
        rung = Rung(
            remedy=proposal.remedy,
            overrides=proposal.sets(state.overrides),
            incident=proposal.incident,
            generation=state.generation + 1,
        )
        tried = ladder.tried | {rung.remedy: ladder.tried.get(rung.remedy, 0) + 1}
        ladder = replace(ladder, rungs=(*ladder.rungs, rung), tried=tried)
    rest = tuple(other for other in state.proposals if other.id != proposal.id)
    after = replace(state, ladder=ladder, proposals=rest)
    return watched_change(
        state,
        after,
        issuer=issuer,
        reason=proposal.reason,
        remedy=proposal.remedy,
        since_step=since,
        direction=proposal.direction.value,
        rung=proposal.rung,
        incident=proposal.incident,
        proposal=proposal.id,
    )
