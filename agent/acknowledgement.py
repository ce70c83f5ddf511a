"""What the trainer says that it is doing, against what is wanted of it."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.agent.changes import AGENT, event, outdated
from trimtab.agent.run_state import Reported, RunState
from trimtab.agent.state import Event, EventKind
from trimtab.agent.values import replace
from trimtab.hooks.controls import CONTROL_NAMES, ControlValue
from trimtab.hooks.records import StepSummary


def acknowledged(state: RunState, summary: StepSummary) -> tuple[RunState, tuple[Event, ...]]:
    """Take in the trainer's report: what it changed by itself, what took effect, what this ledger knows nothing of."""
    before = state.reported
    reported = Reported(
        generation=summary.generation,
        applied=summary.applied,
        capabilities=summary.capabilities,
        overrides=summary.overrides,
        refusals=summary.refusals,
        log=summary.log,
        censored=_censored(summary),
    )
    events = () if before is None else _own_changes(state, before, reported)
    state = replace(state, reported=reported, behind=False)
    arrived = before is None or before.generation != reported.generation
    if _is_foreign(state, reported):
        state, more = _taken_over(state, before, reported)
        events += more
    elif arrived and 0 < reported.generation == state.generation:
        events += (_in_effect(state, reported),)
    rungs = tuple(
        replace(rung, applied_tick=state.tick)
        if rung.applied_tick is None
        and summary.generation >= rung.generation
        and all(getattr(summary.applied, name) == value for name, value in rung.overrides.items())
        else rung
        for rung in state.ladder.rungs
    )
    return replace(state, ladder=replace(state.ladder, rungs=rungs)), events


def _censored(summary: StepSummary) -> dict[str, float]:
    names = () if summary.log is None else summary.log.censored
    return {name: summary.scalars[name] for name in names if name in summary.scalars}


def awaited(state: RunState, patience: int) -> tuple[RunState, tuple[Event, ...]]:
    """Count the summaries without what was sent; at `patience` of them in a row put it on record."""
    limit = max(patience, 1)
    reported = state.reported
    # The generation has to have gone out before it can be ignored.
    if reported is None or state.unheeded >= limit or not 0 < state.generation <= state.commanded:
        return state, ()
    if state.in_sync:
        return replace(state, unheeded=0), ()
    state = replace(state, unheeded=state.unheeded + 1)
    if state.unheeded < limit:
        return state, ()
    message = (
        f"generation {state.generation} is not in effect after {limit} steps: the trainer reports generation "
        f"{reported.generation}, and not those overrides. Check that it takes in the answers to its summaries"
    )
    row = event(state, EventKind.CONTROLS_IGNORED, message, generation=state.generation, reported=reported.generation)
    return state, (row,)


def _own_changes(state: RunState, before: Reported, after: Reported) -> tuple[Event, ...]:
    """Controls that changed under one generation, and that nobody overrides."""
    if before.generation != after.generation or before.applied == after.applied:
        return ()
    overrides = state.overrides
    changed = {
        name: [getattr(before.applied, name), getattr(after.applied, name)]
        for name in CONTROL_NAMES
        if name not in overrides and getattr(before.applied, name) != getattr(after.applied, name)
    }
    if not changed:
        return ()
    what = ", ".join(f"{name} {old!r} -> {new!r}" for name, (old, new) in changed.items())
    return (event(state, EventKind.RUN_CHANGED_CONTROLS, f"the run changed {what}", changed=changed),)


def _in_effect(state: RunState, reported: Reported) -> Event:
    """The generation has arrived; what of it the trainer left out is named."""
    absent = [name for name, value in state.overrides.items() if reported.overrides.get(name) != value]
    left_out = [reported.refused.get(name, f"{name}: no reason was given") for name in absent]
    message = f"generation {reported.generation} is in effect"
    if left_out:
        message += f", without {', '.join(absent)} ({'; '.join(left_out)})"
    detail = {"left_out": left_out} if left_out else {}
    return event(state, EventKind.CONTROLS_APPLIED, message, generation=reported.generation, **detail)


def _is_foreign(state: RunState, reported: Reported) -> bool:
    """The trainer has overrides, or a generation, that were never sent out from here."""
    if state.in_sync:
        return False
    extra = reported.overrides.keys() - state.overrides.keys()
    return reported.generation > state.commanded or (reported.generation == state.generation and bool(extra))


def _lifted(state: RunState, before: Reported | None, reported: Reported) -> dict[str, ControlValue]:
    """What this ledger wants and the trainer, which is ahead of it, was told to drop.

    A person's setting that the trainer had when it last reported here was lifted since; one that it never had was made
    since, and stands. A remedy of the agent's is no decision of a person's, and stands only where it is in effect.
    """
    if reported.generation <= state.commanded:
        return {}
    agents = {name for rung in state.ladder.rungs for name in rung.overrides} - state.person_overrides.keys()
    had = {} if before is None else before.overrides
    return {
        name: value
        for name, value in state.overrides.items()
        if name not in reported.refused
        and reported.overrides.get(name) != value
        and (had.get(name) == value or name in agents)
    }


def _without(state: RunState, lifted: Mapping[str, ControlValue]) -> RunState:
    """The state that does not want these."""
    rungs = tuple(rung for rung in state.ladder.rungs if not rung.overrides.keys() & lifted.keys())
    return replace(
        state,
        ladder=replace(state.ladder, rungs=rungs),
        adopted={name: value for name, value in state.adopted.items() if name not in lifted},
        person_overrides={name: value for name, value in state.person_overrides.items() if name not in lifted},
        pin="" if "pin" in lifted else state.pin,
        canary=None if lifted else state.canary,
    )


def _taken_over(state: RunState, before: Reported | None, reported: Reported) -> tuple[RunState, tuple[Event, ...]]:
    """Keep what the trainer has, drop what it was told to, and state what is wanted above its generation where that is
    something else."""
    lifted = _lifted(state, before, reported)
    state = _without(state, lifted)
    unknown = {name: value for name, value in reported.overrides.items() if name not in state.overrides}
    if state.killed:  # nothing is overridden any more, whoever asked for it
        unknown = {}
    state, withdrawn = outdated(state)
    state = replace(
        state,
        adopted=state.adopted | unknown,
        generation=max(state.generation, reported.generation),
        commanded=max(state.commanded, reported.generation),
    )
    what = _named(unknown) or "no override"
    message = f"the trainer has generation {reported.generation}, and {what}, of which this ledger knows nothing"
    if lifted:
        message += f"; {_named(lifted)}, which the trainer no longer has, is wanted no more"
    if not state.in_sync:
        generation = max(state.generation, reported.generation + 1)
        message += f": kept, and stated again with all that is wanted as generation {generation}"
        state = replace(state, generation=generation, unheeded=0, issuer=AGENT, reason=message)
    else:
        message += ": kept until a person changes it"
        state = replace(state, issuer=state.issuer or AGENT, reason=state.reason or message)
    row = event(
        state,
        EventKind.CONTROLS_TAKEN_OVER,
        message,
        generation=state.generation,
        reported=reported.generation,
        adopted=unknown,
        after=state.overrides,
        **({"lifted": lifted} if lifted else {}),
    )
    return state, (*withdrawn, row)


def _named(overrides: Mapping[str, ControlValue]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in overrides.items())
