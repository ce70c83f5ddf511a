"""What a person tells the agent, checked before anything changes."""

from __future__ import annotations

from trimtab.agent.changes import AGENT, Decision, changed, enacted, event, outdated, watched_change, without
from trimtab.agent.checks import MOST
from trimtab.agent.detector import Role
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.incidents import alarming, fingerprint, is_open
from trimtab.agent.run_state import Ladder, RunState
from trimtab.agent.state import (
    Acknowledgement,
    Direction,
    Event,
    EventKind,
    Mode,
    OperatorAction,
    OperatorVerb,
    Proposal,
    Silence,
    State,
)
from trimtab.agent.values import replace
from trimtab.hooks.controls import CONTROL_NAMES, ControlError, ControlValue, check_value, no_such_control
from trimtab.hooks.fence import Accepted, settled


class OperatorError(ValueError):
    """A decision that does not fit the state, such as approving a proposal that is gone. Nothing was changed."""


def obeyed(state: RunState, action: OperatorAction) -> Decision:
    """The state after a person's decision, and its audit rows.

    Raises:
        ControlError: controls that do not exist, values that they cannot take, or that the trainer cannot set live, one
        line each. OperatorError: a decision that does not fit the state.
    """
    if action.issuer.strip().casefold() == AGENT:
        raise OperatorError(f"issuer: {action.issuer!r} is the agent's own name; give the name of who decides")
    return {
        OperatorVerb.PATCH_CONTROLS: _patched,
        OperatorVerb.SET_MODE: _switched,
        OperatorVerb.APPROVE: _approved,
        OperatorVerb.REJECT: _rejected,
        OperatorVerb.KILL: _killed,
        OperatorVerb.SILENCE: _silenced,
        OperatorVerb.UNSILENCE: _unsilenced,
        OperatorVerb.ACKNOWLEDGE: _acknowledged,
        OperatorVerb.RESTORED: _restored,
    }[action.verb](state, action)


def _patched(state: RunState, action: OperatorAction) -> Decision:
    if state.killed:
        raise OperatorError("overrides: the kill switch is set; set the mode first")
    if not action.overrides:
        raise ControlError("overrides: empty; name at least one control, with null to lift its override")
    reasons = [_impossible(state, name, value) for name, value in action.overrides.items()]
    if any(reasons):
        raise ControlError("\n".join(filter(None, reasons)))
    wanted = {name: value for name, value in action.overrides.items() if value is not None}
    lifted = set(action.overrides) - set(wanted)
    if not wanted and not lifted & set(state.overrides):
        return state, ()
    after = replace(
        state,
        adopted={name: value for name, value in state.adopted.items() if name not in action.overrides},
        ladder=_yielded(state.ladder, set(action.overrides), action.issuer),
        person_overrides={k: v for k, v in state.person_overrides.items() if k not in lifted} | wanted,
    )
    return watched_change(state, after, issuer=action.issuer, reason=action.reason)


def _impossible(state: RunState, name: str, value: ControlValue | None) -> str | None:
    """Why `name` cannot be set to `value`, or lifted where that is None; lifting what is not overridden is nothing."""
    if value is None:
        return None if name in CONTROL_NAMES else no_such_control(name)
    try:
        check_value(name, value)
    except ControlError as error:
        return str(error)
    return None if state.reported is None else state.reported.capabilities.refusal(name, value)


def check_agrees(before: RunState, after: RunState) -> None:
    """Refuse a change by which overrides come to contradict each other or the run's own controls.

    For the door and not for the fold: a ledger may hold what was accepted before. Nothing is refused where it cannot be
    told, since the trainer still has overrides that are lifted, and what is under them is its own business.

    Raises:
        ControlError: one line for each override that the trainer would leave out.
    """
    reported = after.reported
    if reported is None or reported.overrides.keys() - after.overrides.keys():
        return
    known, refusals = (
        settled(reported.applied, Accepted(overrides=state.overrides)).refusals for state in (before, after)
    )
    lines = [line for line in refusals if line not in known]
    if lines:
        raise ControlError("\n".join(lines))


def _yielded(ladder: Ladder, controls: set[str], issuer: str) -> Ladder:
    """The ladder without these controls, which a person took over; a remedy that loses one is out for the episode."""
    rungs = []
    refused = dict(ladder.refused)
    for rung in ladder.rungs:
        left = {name: value for name, value in rung.overrides.items() if name not in controls}
        if left != rung.overrides:
            refused[rung.remedy] = f"{issuer} changed its controls"
        if left:
            rungs.append(replace(rung, overrides=left))
    return replace(ladder, rungs=tuple(rungs), refused=refused)


def _switched(state: RunState, action: OperatorAction) -> Decision:
    if action.mode is None:
        raise OperatorError(f"mode: missing; give one of {', '.join(Mode)}")
    row = event(
        state,
        EventKind.MODE_CHANGED,
        action.reason,
        before=state.mode.value,
        after=action.mode.value,
        issuer=action.issuer,
    )
    events: tuple[Event, ...] = (row,)
    for proposal in state.proposals:
        state, more = without(state, proposal, "the mode changed")
        events += more
    ladder = replace(state.ladder, locked="", rollbacks=())
    return replace(state, mode=action.mode, killed=False, ladder=ladder), events


def _killed(state: RunState, action: OperatorAction) -> Decision:
    """No override, whoever set it, and no agent: the run has its own controls again."""
    ladder = replace(state.ladder, rungs=(), calm=0, harmed=0, trough=None)
    after = replace(state, mode=Mode.OBSERVE, killed=True, adopted={}, person_overrides={}, pin="", ladder=ladder)
    row = event(state, EventKind.KILLED, action.reason, issuer=action.issuer, before=state.overrides)
    if not state.overrides:
        after, withdrawn = outdated(after)
        return replace(after, canary=None), (row, *withdrawn)
    after, events = changed(state, after, issuer=action.issuer, reason=action.reason)
    return after, (row, *events)


def _standing(state: RunState, action: OperatorAction) -> Proposal:
    for proposal in state.proposals:
        if proposal.id == action.proposal:
            if proposal.base_generation != state.generation:
                raise OperatorError(
                    f"proposal: {proposal.id} was worked out against generation {proposal.base_generation}, "
                    f"and the controls are at {state.generation}"
                )
            _check_seen(state, proposal, action)
            return proposal
    standing = ", ".join(str(proposal.id) for proposal in state.proposals) or "none"
    raise OperatorError(f"proposal: {action.proposal} does not stand; standing: {standing}")


def _check_seen(state: RunState, proposal: Proposal, action: OperatorAction) -> None:
    """Refuse a decision on other changes than those of the proposal."""
    proposed = proposal.changes(state.overrides)
    if action.changes is not None and action.changes != proposed:
        raise OperatorError(
            f"changes: {action.changes} are not those of proposal {proposal.id}, {proposed}; look at it again"
        )


def _check_possible(state: RunState, proposal: Proposal) -> None:
    """Refuse what stood when it was proposed, and does not now."""
    for incident in alarming(state.incidents, Role.INPUT):
        if incident.severity is State.CRITICAL and proposal.direction is Direction.TIGHTEN:
            raise OperatorError(f"proposal: {proposal.id} is no remedy for broken inputs: {incident.message}")
    if state.reported is not None:
        capabilities, new = state.reported.capabilities, proposal.sets(state.overrides)
        reasons = [capabilities.refusal(name, value) for name, value in new.items()]
        if any(reasons):
            raise OperatorError(f"proposal: {proposal.id} cannot be had any more: {'; '.join(filter(None, reasons))}")


def _approved(state: RunState, action: OperatorAction) -> Decision:
    proposal = _standing(state, action)
    _check_possible(state, proposal)
    row = event(
        state,
        EventKind.APPROVED,
        action.reason,
        proposal=proposal.id,
        remedy=proposal.remedy,
        issuer=action.issuer,
    )
    state, events = enacted(state, proposal, issuer=action.issuer)
    return state, (row, *events)


def _rejected(state: RunState, action: OperatorAction) -> Decision:
    proposal = _standing(state, action)
    row = event(
        state,
        EventKind.REJECTED,
        action.reason,
        proposal=proposal.id,
        remedy=proposal.remedy,
        issuer=action.issuer,
    )
    rest = tuple(other for other in state.proposals if other.id != proposal.id)
    ladder = replace(state.ladder, calm=0)
    if proposal.direction is Direction.TIGHTEN:
        reason = f"rejected by {action.issuer}: {action.reason}"
        ladder = replace(ladder, refused=ladder.refused | {proposal.remedy: reason})
    return replace(state, proposals=rest, ladder=ladder), (row,)


def _silenced(state: RunState, action: OperatorAction) -> Decision:
    """A silence takes the place of one that there is. It is about telling: what is judged and done stays the same."""
    key = _silenceable(state, action)
    if action.steps is not None and not 1 <= action.steps <= MOST:
        raise OperatorError(f"steps: {action.steps} must be 1 to {MOST}, or absent for as long as nobody cancels it")
    until = None if action.steps is None else state.tick + action.steps + 1
    silence = Silence(fingerprint=key, issuer=action.issuer, until_tick=until)
    row = event(state, EventKind.SILENCED, action.reason, fingerprint=key, steps=action.steps, issuer=action.issuer)
    return replace(state, silences=(*_other_silences(state, key), silence)), (row,)


def _unsilenced(state: RunState, action: OperatorAction) -> Decision:
    key = _silenceable(state, action)
    rest = _other_silences(state, key)
    if len(rest) == len(state.silences):
        silenced = ", ".join(silence.fingerprint for silence in state.silences) or "none"
        raise OperatorError(f"target: {action.target!r} is not silenced; silenced: {silenced}")
    row = event(state, EventKind.UNSILENCED, action.reason, fingerprint=key, issuer=action.issuer)
    return replace(state, silences=rest), (row,)


def _restored(state: RunState, action: OperatorAction) -> Decision:
    """Wait for the trainer's word, and act no more: a mode, a kill or a change of a person's may be lost."""
    message = "what was decided after that backup is lost; set the mode again to let the agent act"
    row = event(state, EventKind.RESTORED, f"{action.reason}: {message}", issuer=action.issuer, wanted=state.overrides)
    state, withdrawn = outdated(state)
    ladder = replace(state.ladder, locked=state.ladder.locked or message)
    return replace(state, behind=True, canary=None, ladder=ladder), (row, *withdrawn)


def _acknowledged(state: RunState, action: OperatorAction) -> Decision:
    key = _silenceable(state, action)
    incident = state.incidents.get(key)
    if incident is None or not is_open(incident):
        there = ", ".join(each.detector for each in state.incidents.values() if is_open(each)) or "none"
        raise OperatorError(f"target: {action.target!r} has no open incident; open: {there}")
    by = Acknowledgement(issuer=action.issuer, reason=action.reason, step=max(state.last_step, 0))
    row = event(state, EventKind.ACKNOWLEDGED, action.reason, fingerprint=key, issuer=action.issuer)
    return replace(state, incidents={**state.incidents, key: replace(incident, acknowledged=by)}), (row,)


def _silenceable(state: RunState, action: OperatorAction) -> str:
    """The fingerprint that the action is about."""
    name = action.target.removeprefix(fingerprint(state.job, ""))
    if name not in DETECTORS:
        known = ", ".join(DETECTORS)
        raise OperatorError(f"target: {action.target!r} is no detector or fingerprint; detectors: {known}")
    return fingerprint(state.job, name)


def _other_silences(state: RunState, key: str) -> tuple[Silence, ...]:
    return tuple(silence for silence in state.silences if silence.fingerprint != key)
