"""From incidents to remedies: which, when, and when not.

Low precision shows in the detectors of role SIGNATURE. Its ladder is tried from the bottom; each remedy is verified
before the next, and taken back, newest first, only when the cause itself (the spread of the mismatch) has been gone
for long: centering leaves the mismatch where it is, so an alarm that ended proves the remedy, not the absence of the
cause.

An action needs all of: a fault-free diagnosis (`trimtab.agent.diagnosis`), an incident that is firing and alarms now,
the settle time after the start, the cool-down since the last action, room in the budget, and the newest remedy
verified, which is `verify` steps after the trainer reported it in effect. A control that a person set is never
touched. Everything proposed, refused or changed is an event; a refusal is recorded once, not every step.
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
from trimtab.agent.state import Event, EventKind, Incident, Mode, Proposal
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
    if state.mode is Mode.OBSERVE:
        return state, events
    state, more = _revised(state)
    incident = next((open_ for open_ in firing(state.incidents, Role.SIGNATURE) if open_.alarms), None)
    if incident is not None:
        state, last = _tightened(config, state, reading, reported, incident)
    else:
        state, last = _relaxed(config, state, reading)
    return state, (*events, *more, *last)


def _heeded(state: RunState, reported: Reported) -> Decision:
    """Take back a remedy that the trainer itself refused."""
    if not state.ladder.rungs or reported.generation != state.generation or not reported.refusals:
        return state, ()
    rung = state.ladder.rungs[-1]
    reasons = [line for line in reported.refusals if line.split(":")[0] in rung.overrides]
    if rung.applied_tick is not None or not reasons:
        return state, ()
    reason = f"the trainer refused: {'; '.join(reasons)}"
    refused = event(state, EventKind.REFUSED, reason, remedy=rung.remedy, incident=rung.incident)
    ladder = state.ladder
    ladder = replace(ladder, rungs=ladder.rungs[:-1], refused=ladder.refused | {rung.remedy: reason})
    state, events = changed(
        state,
        ladder=ladder,
        person_overrides=state.person_overrides,
        issuer=AGENT,
        reason=reason,
        remedy=rung.remedy,
        incident=rung.incident,
    )
    return state, (refused, *events)


def _revised(state: RunState) -> Decision:
    """Withdraw proposals whose incident ended; forget refusals when every incident of the signature has."""
    events: tuple[Event, ...] = ()
    held = {rung.remedy for rung in state.ladder.rungs}
    for proposal in state.proposals:
        if proposal.remedy not in held and not is_open(state.incidents.get(proposal.incident)):
            state, more = without(state, proposal, "its incident ended")
            events += more
    if not any(is_open(state.incidents.get(fingerprint(state.job, name))) for name in played_by(Role.SIGNATURE)):
        state = replace(state, ladder=replace(state.ladder, refused={}, blocked=None))
    return state, events


def _tightened(
    config: AgentConfig, state: RunState, reading: Reading, reported: Reported, incident: Incident
) -> Decision:
    state = replace(state, ladder=replace(state.ladder, calm=0))
    found = fault(config, state, reading)
    if found is not None:
        return _blocked(state, incident, found.kind, found.reason)
    if not _may_act(config, state) or not _verified(config, state):
        return state, ()
    events: tuple[Event, ...] = ()
    held = {rung.remedy for rung in state.ladder.rungs}
    for name in LADDER:
        if name not in config.policy.allow or name in held or name in state.ladder.refused:
            continue
        outcome = _offer(state, reported, name)
        if isinstance(outcome, dict):
            state, more = _by_mode(state, name, state.overrides | outcome, incident.fingerprint, incident.message)
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


def _verified(config: AgentConfig, state: RunState) -> bool:
    """The newest remedy has been in effect long enough to know that it does not do."""
    if not state.ladder.rungs:
        return True
    since = state.ladder.rungs[-1].applied_tick
    return since is not None and state.tick - since >= config.policy.verify


def _offer(state: RunState, reported: Reported, remedy: str) -> dict[str, ControlValue] | Refusal:
    offer = REMEDIES[remedy](reported.applied, reported.capabilities)
    if isinstance(offer, dict):
        if offer.items() <= state.overrides.items():
            return Refusal(reason="already asked for")
        for name, value in offer.items():
            if state.person_overrides.get(name, value) != value:
                return Refusal(reason=f"{name}: a person set it to {state.person_overrides[name]!r}")
    return offer


def _relaxed(config: AgentConfig, state: RunState, reading: Reading) -> Decision:
    """Take the newest remedy back once its cause has been gone for long."""
    ladder = state.ladder
    if not ladder.rungs:
        return state, ()
    spread = reading.mean("mismatch_std")
    quiet = spread is not None and spread < config.policy.relax_std
    quiet = quiet and not any(
        is_open(state.incidents.get(fingerprint(state.job, name))) for name in played_by(Role.SIGNATURE)
    )
    state = replace(state, ladder=replace(ladder, calm=ladder.calm + 1 if quiet else 0))
    if state.ladder.calm < config.policy.relax_after or not quiet or not _may_act(config, state):
        return state, ()
    rung = ladder.rungs[-1]
    lower = replace(state, ladder=replace(ladder, rungs=ladder.rungs[:-1]))
    reason = f"mismatch std below {config.policy.relax_std:g} for {state.ladder.calm} steps"
    return _by_mode(state, rung.remedy, lower.overrides, rung.incident, reason)


def _by_mode(
    state: RunState,
    remedy: str,
    overrides: dict[str, ControlValue],
    incident: str,
    reason: str,
) -> Decision:
    """Propose a change, and in auto make it. A proposal that stands is not made again."""
    if any(proposal.remedy == remedy for proposal in state.proposals):
        return state, ()
    proposal = Proposal(
        id=state.next_proposal,
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
