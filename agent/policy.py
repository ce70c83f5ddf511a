"""From incidents to remedies: which, when, and when not.

What is wrong (`trimtab.agent.wrong`) has a ladder (`trimtab.agent.ladders`) that is tried from its first remedy on. A
remedy is verified before the next, and taken back, newest first, only when its cause has been gone for long: centering
leaves the mismatch where it is, so an alarm that ended proves the remedy, not the absence of the cause.

An action needs all of: a fault-free diagnosis (`trimtab.agent.diagnosis`), an incident that is firing and alarms now,
the settle time after the start, the cool-down since the last action, which doubles with every repeat of the remedy,
room in the budget for it and for its rollback, no remedy that is still being watched (`trimtab.agent.rollback`), the
newest remedy verified, which is `verify` steps after the trainer reported it in effect, and limits that let it through
(`trimtab.agent.control_limits`). Harm that goes on under a remedy for as long asks for the next one too
(`trimtab.agent.verification`). No remedy touches a control that a person set. Everything proposed, refused or changed
is an event, with what was foreseen of it (`trimtab.agent.foresight`); a refusal is recorded once, not every step.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.agent.changes import AGENT, Decision, changed, enacted, event, relaxed, spent, without
from trimtab.agent.checkpoints import best, pinned, recorded
from trimtab.agent.config import AgentConfig
from trimtab.agent.detector import Role
from trimtab.agent.diagnosis import fault
from trimtab.agent.foresight import Foreseen, foreseen, too_much
from trimtab.agent.incidents import firing, is_open
from trimtab.agent.ladders import REPEATABLE, ladder_against
from trimtab.agent.reading import Reading
from trimtab.agent.remedies import REMEDIES
from trimtab.agent.remedy import Refusal, Situation
from trimtab.agent.rollback import supervised
from trimtab.agent.run_state import Reported, RunState
from trimtab.agent.state import Direction, Event, EventKind, Incident, Mode, Proposal
from trimtab.agent.values import replace
from trimtab.agent.verification import cause_lasts, collapsed, unhelped, verified, watched
from trimtab.agent.wrong import Wrong, signed, what_is_wrong
from trimtab.hooks.controls import ControlValue


def decided(config: AgentConfig, state: RunState, reading: Reading) -> Decision:
    """The state after the policy has looked at one step, and what it did or refused to do."""
    reported = state.reported
    if reported is None:
        return state, ()
    state, events = _heeded(state, reported)
    state = recorded(watched(config, state, reading), reading)
    state, judged = supervised(config, state, reading)
    events += judged
    if state.mode is Mode.OBSERVE:
        return state, events
    if state.mode is Mode.AUTO:
        state, kept = pinned(config, state)
        events += kept
    state, more = _revised(_calmed(config, state, reading), config.policy.expire)
    wrong = what_is_wrong(state, reading, patience=config.policy.verify)
    harm = unhelped(config, state)
    if wrong is None and harm is not None:
        wrong = Wrong(incident=harm)
    if wrong is not None:
        # Nothing brought it back: not the remedy in force, and not the end of the change that did the harm.
        lost = collapsed(state) and (harm is not None or (bool(state.ladder.rollbacks) and not state.ladder.rungs))
        state, last = _tightened(config, state, reading, reported, wrong, lost=lost)
    else:
        state, last = _relaxed(config, state)
    return state, (*events, *more, *last)


def _heeded(state: RunState, reported: Reported) -> Decision:
    """Take back a remedy that the trainer itself refused."""
    watched_only = state.mode is Mode.OBSERVE
    if watched_only or not state.ladder.rungs or reported.generation != state.generation or not reported.refusals:
        return state, ()
    rung = state.ladder.rungs[-1]
    reasons = [line for name, line in reported.refused.items() if name in rung.overrides]
    if rung.applied_tick is not None or not reasons:
        return state, ()
    reason = f"the trainer refused: {'; '.join(reasons)}"
    refused = event(state, EventKind.REFUSED, reason, remedy=rung.remedy, incident=rung.incident)
    ladder = state.ladder
    ladder = replace(ladder, rungs=ladder.rungs[:-1], refused=ladder.refused | {rung.remedy: reason})
    state, events = changed(
        state,
        replace(state, ladder=ladder),
        issuer=AGENT,
        reason=reason,
        remedy=rung.remedy,
        incident=rung.incident,
    )
    return state, (refused, *events)


def _calmed(config: AgentConfig, state: RunState, reading: Reading) -> RunState:
    """Count the steps in a row without the cause of the newest remedy; one step of it is enough to begin again."""
    quiet = not cause_lasts(config, state, reading) and not signed(state)
    return replace(state, ladder=replace(state.ladder, calm=state.ladder.calm + 1 if quiet else 0))


def _revised(state: RunState, patience: int) -> Decision:
    """Withdraw proposals that lost their ground, or were not answered within `patience` steps; forget refusals once
    signature and harm are over."""
    events: tuple[Event, ...] = ()
    for proposal in state.proposals:
        if proposal.direction is Direction.RELAX:
            lost = None if state.ladder.calm else "its cause is back"
        else:
            lost = None if is_open(state.incidents.get(proposal.incident)) else "its incident ended"
        if lost is None and state.tick >= proposal.until_tick:
            lost = f"nobody answered within {patience} steps"
        if lost is not None:
            state, more = without(state, proposal, lost)
            events += more
    if not any(is_open(incident) for incident in state.incidents.values()) and not state.ladder.harmed:
        state = replace(state, ladder=replace(state.ladder, refused={}, blocked=None))
    return state, events


def _tightened(
    config: AgentConfig, state: RunState, reading: Reading, reported: Reported, wrong: Wrong, *, lost: bool
) -> Decision:
    """The next remedy on the ladder; a restore first where the run is `lost` under one."""
    incident = wrong.incident
    found = fault(config, state, reading)
    if found is not None:
        return _blocked(state, incident, found.kind, found.reason)
    if state.ladder.locked:
        return _blocked(state, incident, "locked", state.ladder.locked)
    if not _may_act(config, state) or not verified(config, state):
        return state, ()
    events: tuple[Event, ...] = ()
    ladder = ladder_against(reported.applied, gradients=wrong.gradients, mild=wrong.mild, overreach=wrong.overreach)
    held = {rung.remedy for rung in state.ladder.rungs} - REPEATABLE
    for name in (*(("restore_checkpoint",) if lost else ()), *ladder):
        if name not in config.policy.allow or name in held or name in state.ladder.refused:
            continue
        if not _cooled(config, state, name):
            return state, events
        outcome, expected = _offer(config, state, reading, reported, name)
        if isinstance(outcome, dict):
            proposal = _proposal(config, state, Direction.TIGHTEN, name, ladder, state.overrides | outcome, incident)
            state, more = _by_mode(state, proposal, expected)
            return state, (*events, *more)
        state = replace(state, ladder=replace(state.ladder, refused=state.ladder.refused | {name: outcome.reason}))
        refused = event(state, EventKind.REFUSED, outcome.reason, remedy=name, incident=incident.fingerprint)
        events += (refused,)
    state, more = _blocked(state, incident, "exhausted", "no remedy is left to try")
    return state, (*events, *more)


def _blocked(state: RunState, incident: Incident, kind: str, reason: str) -> Decision:
    """Put on record, once, why nothing is done."""
    if state.ladder.blocked == kind:
        return state, ()
    state = replace(state, ladder=replace(state.ladder, blocked=kind))
    return state, (event(state, EventKind.REFUSED, reason, fault=kind, incident=incident.fingerprint),)


def _may_act(config: AgentConfig, state: RunState) -> bool:
    """Settled, within the budget, rollback included, and no change being watched.

    A person's change is watched no more where a signature that was there before it calls for a remedy.
    """
    canary = state.canary
    free = canary is None or (not canary.remedy and any(firing(state.incidents, Role.SIGNATURE)))
    return state.steps > config.policy.settle and free and spent(state) + 2 <= config.policy.budget


def _cooled(config: AgentConfig, state: RunState, remedy: str) -> bool:
    """Long enough since the last action; a remedy that is used again waits twice as long each time."""
    actions, repeats = state.ladder.actions, min(state.ladder.tried.get(remedy, 0), 10)
    return not actions or state.tick - actions[-1] >= config.policy.cooldown * 2**repeats


def _offer(
    config: AgentConfig, state: RunState, reading: Reading, reported: Reported, remedy: str
) -> tuple[dict[str, ControlValue] | Refusal, Foreseen]:
    """The overrides that a remedy comes to for this job and on this step, or why it is out; and what is foreseen."""
    situation = Situation(
        applied=reported.applied,
        capabilities=reported.capabilities,
        staleness=reading.value("staleness"),
        checkpoint=best(state),
    )
    offer = REMEDIES[remedy](situation)
    if isinstance(offer, dict):
        offer = config.policy.limits.bounded(offer, reported.applied)
    if isinstance(offer, Refusal):
        return offer, {}
    if offer.items() <= state.overrides.items():
        return Refusal(reason="already asked for"), {}
    for name, value in offer.items():
        if state.person_overrides.get(name, value) != value:
            return Refusal(reason=f"{name}: a person set it to {state.person_overrides[name]!r}"), {}
    expected = foreseen(offer, reading.summary)
    reason = too_much(expected)
    return (offer if reason is None else Refusal(reason=reason)), expected


def _relaxed(config: AgentConfig, state: RunState) -> Decision:
    """Take the newest remedy back once its cause has been gone for long."""
    ladder = state.ladder
    if not ladder.rungs or not ladder.calm or ladder.calm < config.policy.relax_after or ladder.locked:
        return state, ()
    rung = ladder.rungs[-1]
    if not _may_act(config, state) or not _cooled(config, state, rung.remedy):
        return state, ()
    lower = replace(state, ladder=replace(ladder, rungs=relaxed(ladder.rungs)))
    incident = state.incidents[rung.incident]
    message = f"its cause has been gone for {ladder.calm} steps"
    relaxation = replace(incident, message=message)
    proposal = _proposal(config, state, Direction.RELAX, rung.remedy, (rung.remedy,), lower.overrides, relaxation)
    return _by_mode(state, proposal, {})


def _proposal(
    config: AgentConfig,
    state: RunState,
    direction: Direction,
    remedy: str,
    ladder: Sequence[str],
    overrides: dict[str, ControlValue],
    incident: Incident,
) -> Proposal:
    return Proposal(
        id=state.next_proposal,
        direction=direction,
        remedy=remedy,
        rung=ladder.index(remedy),
        incident=incident.fingerprint,
        step=state.last_step,
        overrides=overrides,
        base_generation=state.generation,
        until_tick=state.tick + config.policy.expire,
        reason=f"{remedy}: {incident.message}",
    )


def _by_mode(state: RunState, proposal: Proposal, expected: Foreseen) -> Decision:
    """Propose a change, and in auto make it. While one stands no other of its direction is made."""
    if any(standing.direction is proposal.direction for standing in state.proposals):
        return state, ()
    state = replace(state, proposals=(*state.proposals, proposal), next_proposal=proposal.id + 1)
    proposed = event(
        state,
        EventKind.PROPOSED,
        proposal.reason,
        proposal=proposal.id,
        direction=proposal.direction.value,
        remedy=proposal.remedy,
        rung=proposal.rung,
        incident=proposal.incident,
        overrides=dict(proposal.overrides),
        foreseen=expected,
        mode=state.mode.value,
    )
    if state.mode is not Mode.AUTO:
        return state, (proposed,)
    state, events = enacted(state, proposal, issuer=AGENT)
    return state, (proposed, *events)
