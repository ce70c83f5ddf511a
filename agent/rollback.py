"""A change that does harm is taken back: the agent's own, and in mode auto a person's too.

Every change of the overrides, but for pins and for what takes remedies away at once, is watched for `policy.canary`
steps from when the trainer reports it in effect (see `trimtab.agent.canary` for what counts as harm). While a remedy is
watched the agent makes no other change: two at once could not be told apart. What cannot be judged is watched as long
again; what cannot be judged twice is taken back as if it did harm, since nobody could say what it does. Not so a remedy
that has silenced what asked for it, in a run that reports no harm at all. After two rollbacks within 1000 steps the
agent is locked out: it knows this run less well than it thinks, and a person sets its mode again.

A person's change is the first suspect for whatever turns CRITICAL while it is watched, and did not before: it is taken
back at once, and a remedy is for what stays. Ten times the learning rate looks like a mismatch, and centering on top of
it saves nothing.

A rollback is an action and counts as one, so an action is made only where the budget has room for its rollback too.
"""

from __future__ import annotations

from trimtab.agent.canary import Canary, Effect, Judgement, judged, observed
from trimtab.agent.changes import AGENT, Decision, acted, changed, event, recent, spent, without_restore
from trimtab.agent.config import AgentConfig
from trimtab.agent.reading import Reading
from trimtab.agent.run_state import RunState
from trimtab.agent.state import EventKind, Mode, Phase, State
from trimtab.agent.values import replace

LOCK_AFTER = 2
"""Rollbacks within the budget's span."""


def supervised(config: AgentConfig, state: RunState, reading: Reading) -> Decision:
    """The state after one more step of the change that is being watched, judged where its time is up."""
    values = observed(reading.value)
    canary = _started(state)
    if canary is not None and canary.since is not None:
        canary = canary.grown(values, broken=bool(reading.value("nonfinite")))
    length = config.policy.canary
    history = {name: (*state.history.get(name, ()), value)[-length:] for name, value in values.items()}
    state = replace(state, canary=canary, history=history)
    if canary is None or canary.since is None:
        return state, ()
    judgement = _suspect(state, canary)
    if judgement is None and _is_due(canary, length, state.tick):
        judgement = judged(canary)
    return (state, ()) if judgement is None else _concluded(config, state, canary, judgement)


def _started(state: RunState) -> Canary | None:
    canary, reported = state.canary, state.reported
    if canary is None or canary.since is not None or reported is None or reported.generation < canary.generation:
        return canary
    return replace(canary, since=state.tick, since_step=state.last_step)


def _suspect(state: RunState, canary: Canary) -> Judgement | None:
    """What turned CRITICAL under a person's change, or None."""
    for incident in state.incidents.values():
        began = incident.phase is Phase.FIRING and incident.since_step >= canary.since_step
        if began and incident.severity is State.CRITICAL and not canary.remedy and not canary.harmed_before:
            message = f"since it is in effect, {incident.detector}: {incident.message}"
            return Judgement(effect=Effect.HARMED, message=message, evidence=dict(incident.evidence))
    return None


def _is_due(canary: Canary, length: int, tick: int) -> bool:
    steps = tick - (canary.since or 0) + 1
    return bool(canary.broken and not canary.broken_before) or steps >= length * (1 + canary.extended)


def _concluded(config: AgentConfig, state: RunState, canary: Canary, judgement: Judgement) -> Decision:
    what = canary.remedy or f"generation {canary.generation}, set by {canary.issuer},"
    detail = {"generation": canary.generation, "remedy": canary.remedy, "evidence": judgement.evidence}
    if judgement.effect is Effect.UNHARMED:
        row = event(state, EventKind.CHANGE_UNHARMFUL, f"{what} did no harm: {judgement.message}", **detail)
        return replace(state, canary=None), (row,)
    if judgement.effect is Effect.INCONCLUSIVE and _silenced_its_cause(state, canary):
        message = f"{what} is judged by what asked for it, which alarms no more: {judgement.message}"
        return replace(state, canary=None), (event(state, EventKind.CHANGE_UNHARMFUL, message, **detail),)
    if judgement.effect is Effect.INCONCLUSIVE and not canary.extended:
        message = f"{what} cannot be judged and is watched as long again: {judgement.message}"
        row = event(state, EventKind.CHANGE_INCONCLUSIVE, message, **detail)
        return replace(state, canary=replace(canary, extended=True)), (row,)
    found = "could not be judged twice" if judgement.effect is Effect.INCONCLUSIVE else "did harm"
    row = event(state, EventKind.CHANGE_HARMFUL, f"{what} {found}: {judgement.message}", **detail)
    state, events = _taken_back(config, replace(state, canary=None), canary, row.message)
    return state, (row, *events)


def _silenced_its_cause(state: RunState, canary: Canary) -> bool:
    """A remedy in a run that reports no harm at all: the alarm that asked for it is the one thing to go by."""
    asked = [rung.incident for rung in state.ladder.rungs if rung.generation == canary.generation and canary.remedy]
    return any(name in state.incidents and not state.incidents[name].alarms for name in asked)


def _taken_back(config: AgentConfig, state: RunState, canary: Canary, reason: str) -> Decision:
    ladder = state.ladder
    if canary.remedy:
        ladder = replace(ladder, refused=ladder.refused | {canary.remedy: reason})
    if state.mode is not Mode.AUTO or ladder.locked:
        return replace(state, ladder=ladder), ()
    if spent(state) >= config.policy.budget:
        message = f"the budget of {config.policy.budget} actions is spent: take generation {canary.generation} back"
        state = replace(state, ladder=replace(ladder, locked=message))
        return state, (event(state, EventKind.LOCKED_OUT, message),)
    rollbacks = (*recent(ladder.rollbacks, state.tick), state.tick)
    undo = canary.undo
    rungs = tuple(replace(rung, overrides=without_restore(rung.overrides)) for rung in undo.rungs)
    ladder = replace(acted(ladder, state.tick), rungs=rungs, rollbacks=rollbacks)
    # What was adopted from another agent meanwhile stays.
    adopted = without_restore(state.adopted | undo.adopted)
    undone = replace(state, ladder=ladder, adopted=adopted, person_overrides=without_restore(undo.person))
    named = {"remedy": canary.remedy} if canary.remedy else {}
    state, events = changed(state, undone, issuer=AGENT, reason=f"rolled back: {reason}", **named)
    row = event(state, EventKind.ROLLED_BACK, reason, undone=canary.generation, generation=state.generation, **named)
    if len(rollbacks) < LOCK_AFTER:
        return state, (row, *events)
    message = f"{len(rollbacks)} changes were taken back: the agent acts no more until a person sets its mode"
    state = replace(state, ladder=replace(state.ladder, locked=message))
    return state, (row, *events, event(state, EventKind.LOCKED_OUT, message))
