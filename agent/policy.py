"""From incidents to remedies: which, when, and when not.

Low precision shows in the detectors of role SIGNATURE. Its ladder is tried from the bottom; each remedy is verified
before the next, and taken back, newest first, only when the cause itself (the spread of the mismatch) has been gone
for long: centering leaves the mismatch where it is, so an alarm that ended proves the remedy, not the absence of the
cause.

An action needs all of: a fault-free diagnosis (`trimtab.agent.diagnosis`), an incident that is firing and alarms now,
the settle time after the start, the cool-down since the last action, room in the budget, and the newest remedy
verified, which is `verify` steps after the trainer reported it in effect. Harm that goes on under a remedy for as
long asks for the next one too (`trimtab.agent.verification`). A control that a person set is never touched.
Everything proposed, refused or changed is an event; a refusal is recorded once, not every step.
"""

from __future__ import annotations

from dataclasses import replace

from trimtab.agent.changes import AGENT, BUDGET_STEPS, changed, enacted, event, without
from trimtab.agent.config import AgentConfig
from trimtab.agent.detector import Role
from trimtab.agent.diagnosis import fault
from trimtab.agent.incidents import fingerprint, firing, is_open, played_by
from trimtab.agent.reading import Reading
from trimtab.agent.remedies import REMEDIES
from trimtab.agent.remedy import Refusal
from trimtab.agent.run_state import Reported, RunState
from trimtab.agent.state import Direction, Event, EventKind, Incident, Mode, Proposal
from trimtab.agent.verification import unhelped, verified, watched
from trimtab.hooks.controls import ControlValue

LADDER = ("score_centering", "recomputed_ratio", "calibrated_clipping")
"""Remedies for it, first choice first; a remedy that is already in effect is passed over."""

Decision = tuple[RunState, tuple[Event, ...]]


def decided(config: AgentConfig, state: RunState, reading: Reading) -> Decision:
    """The state after the policy has looked at one step, and what it did or refused to do."""
    reported = state.reported
    if reported is None:
        return state, ()
    state, events = _heeded(state, reported)
    state = watched(config, state, reading)
    if state.mode is Mode.OBSERVE:
        return state, events
    state, more = _revised(_calmed(config, state, reading))
    incident = next((open_ for open_ in firing(state.incidents, Role.SIGNATURE) if open_.alarms), None)
    incident = incident or unhelped(config, state)
    if incident is not None:
        state, last = _tightened(config, state, reading, reported, incident)
    else:
        state, last = _relaxed(config, state)
    return state, (*events, *more, *last)


def _heeded(state: RunState, reported: Reported) -> Decision:
    """Take back a remedy that the trainer itself refused."""
    if not state.ladder.rungs or reported.generation != state.generation or not reported.refusals:
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


def _signed(state: RunState) -> bool:
    """An incident of the signature is open."""
    return any(is_open(state.incidents.get(fingerprint(state.job, name))) for name in played_by(Role.SIGNATURE))


def _calmed(config: AgentConfig, state: RunState, reading: Reading) -> RunState:
    """Count the steps in a row without the cause; one step of it is enough to begin again."""
    spread = reading.mean("mismatch_std")
    quiet = spread is not None and spread < config.policy.relax_std and not _signed(state)
    return replace(state, ladder=replace(state.ladder, calm=state.ladder.calm + 1 if quiet else 0))


def _revised(state: RunState) -> Decision:
    """Withdraw proposals that lost their ground; forget refusals once signature and harm are over."""
    events: tuple[Event, ...] = ()
    for proposal in state.proposals:
        if proposal.direction is Direction.RELAX:
            lost = None if state.ladder.calm else "its cause is back"
        else:
            lost = None if is_open(state.incidents.get(proposal.incident)) else "its incident ended"
        if lost is not None:
            state, more = without(state, proposal, lost)
            events += more
    if not _signed(state) and not state.ladder.harmed:
        state = replace(state, ladder=replace(state.ladder, refused={}, blocked=None))
    return state, events


def _tightened(
    config: AgentConfig, state: RunState, reading: Reading, reported: Reported, incident: Incident
) -> Decision:
    found = fault(config, state, reading)
    if found is not None:
        return _blocked(state, incident, found.kind, found.reason)
    if not _may_act(config, state) or not verified(config, state):
        return state, ()
    events: tuple[Event, ...] = ()
    held = {rung.remedy for rung in state.ladder.rungs}
    for name in LADDER:
        if name not in config.policy.allow or name in held or name in state.ladder.refused:
            continue
        outcome = _offer(state, reported, name)
        if isinstance(outcome, dict):
            wanted, tighten = state.overrides | outcome, Direction.TIGHTEN
            state, more = _by_mode(state, tighten, name, wanted, incident.fingerprint, incident.message)
            return state, (*events, *more)
        ladder = replace(state.ladder, refused=state.ladder.refused | {name: outcome.reason})
        state = replace(state, ladder=ladder)
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
    """Settled, cooled down, and within the budget."""
    policy, actions = config.policy, state.ladder.actions
    settled = state.steps > policy.settle
    cooled = not actions or state.tick - actions[-1] >= policy.cooldown
    spent = sum(past > state.tick - BUDGET_STEPS for past in actions)
    return settled and cooled and spent < policy.budget


def _offer(state: RunState, reported: Reported, remedy: str) -> dict[str, ControlValue] | Refusal:
    offer = REMEDIES[remedy](reported.applied, reported.capabilities)
    if isinstance(offer, dict):
        if offer.items() <= state.overrides.items():
            return Refusal(reason="already asked for")
        for name, value in offer.items():
            if state.person_overrides.get(name, value) != value:
                return Refusal(reason=f"{name}: a person set it to {state.person_overrides[name]!r}")
    return offer


def _relaxed(config: AgentConfig, state: RunState) -> Decision:
    """Take the newest remedy back once its cause has been gone for long."""
    ladder = state.ladder
    if not ladder.rungs or not ladder.calm or ladder.calm < config.policy.relax_after or not _may_act(config, state):
        return state, ()
    rung = ladder.rungs[-1]
    lower = replace(state, ladder=replace(ladder, rungs=ladder.rungs[:-1]))
    reason = f"mismatch std below {config.policy.relax_std:g} for {ladder.calm} steps"
    return _by_mode(state, Direction.RELAX, rung.remedy, lower.overrides, rung.incident, reason)


def _by_mode(
    state: RunState,
    direction: Direction,
    remedy: str,
    overrides: dict[str, ControlValue],
    incident: str,
    reason: str,
) -> Decision:
    """Propose a change, and in auto make it. A proposal that stands is not made again."""
    if any((proposal.direction, proposal.remedy) == (direction, remedy) for proposal in state.proposals):
        return state, ()
    proposal = Proposal(
        id=state.next_proposal,
        direction=direction,
        remedy=remedy,
        rung=LADDER.index(remedy),
        incident=incident,
        step=state.last_step,
        overrides=overrides,
        base_generation=state.generation,
        reason=f"{remedy}: {reason}",
    )
    state = replace(state, proposals=(*state.proposals, proposal), next_proposal=proposal.id + 1)
    proposed = event(
        state,
        EventKind.PROPOSED,
        proposal.reason,
        proposal=proposal.id,
        direction=direction.value,
        remedy=remedy,
        rung=proposal.rung,
        incident=incident,
        overrides=dict(overrides),
        mode=state.mode.value,
    )
    if state.mode is not Mode.AUTO:
        return state, (proposed,)
    state, events = enacted(state, proposal, issuer=AGENT)
    return state, (proposed, *events)
