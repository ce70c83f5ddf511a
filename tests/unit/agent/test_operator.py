"""What people decide: carried out exactly, or refused before anything changes."""

from dataclasses import replace
from typing import Any

import pytest
from agent_runs import CAPABLE, Plant, step_summary
from agent_sessions import CENTRED, Session

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.operator import OperatorError
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Acknowledgement, EventKind, Mode, OperatorAction, OperatorVerb, Phase
from trimtab.hooks.controls import ControlError

CONFIG = AgentConfig(mode=Mode.AUTO)


def action(verb: OperatorVerb, **fields: Any) -> OperatorAction:
    return OperatorAction(job="run", verb=verb, issuer="ada", reason="trying", **fields)


def patched(state: RunState, **overrides: Any) -> RunState:
    return advance(CONFIG, state, action(OperatorVerb.PATCH_CONTROLS, overrides=overrides)).state


def seen(**fields: Any) -> RunState:
    return advance(CONFIG, RunState.initial("run"), step_summary(0, **fields)).state


def centred() -> RunState:
    """A job whose agent has put score centering in force."""
    plant, state = Plant(seed=0, noisy_from=0), RunState.initial("run", Mode.AUTO)
    for _ in range(10):
        outcome = advance(CONFIG, state, plant.advance())
        state = outcome.state
        plant.obey(outcome.command)
    return state


def test_a_patch_is_an_event_and_a_command_one_generation_on() -> None:
    outcome = advance(CONFIG, seen(), action(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": 0.28}))
    [event] = outcome.events
    assert event.kind is EventKind.CONTROLS_CHANGED
    assert event.detail == {"generation": 1, "issuer": "ada", "before": {}, "after": {"clip_high": 0.28}}
    assert outcome.command is not None
    assert (outcome.command.generation, outcome.command.overrides) == (1, {"clip_high": 0.28})
    assert (outcome.command.issuer, outcome.command.reason) == ("ada", "trying")


@pytest.mark.parametrize("issuer", ["agent", " Agent "])
def test_nobody_decides_under_the_name_of_the_agent(issuer: str) -> None:
    with pytest.raises(OperatorError, match=f"^issuer: '{issuer}' is the agent's own name"):
        advance(CONFIG, seen(), replace(action(OperatorVerb.SET_MODE, mode=Mode.AUTO), issuer=issuer))


def test_before_a_run_has_reported_a_patch_waits_for_it() -> None:
    outcome = advance(CONFIG, RunState.initial("run"), action(OperatorVerb.PATCH_CONTROLS, overrides={"lr_scale": 0.5}))
    assert outcome.command is None
    after = advance(CONFIG, outcome.state, step_summary(0))
    assert after.command is not None
    assert after.command.overrides == {"lr_scale": 0.5}


def test_lifting_returns_a_control_to_the_run_and_leaves_the_others() -> None:
    state = patched(patched(seen(), clip_high=0.28, clip_low=0.1), clip_high=None)
    assert state.overrides == {"clip_low": 0.1}
    assert state.generation == 2


def test_a_person_may_take_over_what_the_agent_did() -> None:
    state = patched(centred(), centering=None)
    assert state.overrides == {"ratio_reference": "recomputed"}
    assert state.ladder.refused == {"score_centering": "ada changed its controls"}
    state = patched(state, ratio_reference="sampler")
    assert state.overrides == state.person_overrides == {"ratio_reference": "sampler"}
    assert state.ladder.rungs == ()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({}, "overrides: empty"),
        ({"clip_hgih": 0.3}, "clip_hgih: no such control"),
        ({"clip_high": -1.0}, "clip_high: -1.0 is not a number in"),
        ({"clip_high": "wide"}, "clip_high: 'wide' is not a number"),
        ({"clip_lwo": None}, "clip_lwo: no such control; did you mean clip_low"),
        ({"train_format": "nvfp4"}, "train_format: restart in this trainer"),
        ({"lr_scale": 0.5}, "lr_scale: absent in this trainer"),
        ({"sampler_format": "fp4"}, "sampler_format: 'fp4' is none of bf16, nvfp4"),
        ({"clip_high": 0.3, "centering": True}, "centering: the rollouts record no sampler head"),
    ],
)
def test_a_bad_patch_changes_nothing(overrides: dict[str, Any], message: str) -> None:
    state = seen(capabilities=replace(CAPABLE, sampler_head=0))
    with pytest.raises(ControlError, match=message):
        patched(state, **overrides)


def test_every_impossible_override_of_a_patch_is_told() -> None:
    with pytest.raises(ControlError) as told:
        patched(seen(), clip_high=-1.0, clip_mode="nominal", lr_scale=0.5, speed=2)
    assert [line.partition(":")[0] for line in str(told.value).splitlines()] == ["clip_high", "lr_scale", "speed"]


def test_lifting_what_is_not_overridden_changes_nothing() -> None:
    state = patched(seen(), clip_high=0.28)
    assert patched(state, clip_low=None) == state
    lifted = patched(state, clip_low=None, clip_high=None)
    assert (lifted.overrides, lifted.generation) == ({}, 2)


def test_the_mode_is_set_and_on_record() -> None:
    outcome = advance(CONFIG, seen(), action(OperatorVerb.SET_MODE, mode=Mode.APPROVE))
    assert outcome.state.mode is Mode.APPROVE
    [event] = outcome.events
    assert event.detail == {"before": "observe", "after": "approve", "issuer": "ada"}
    with pytest.raises(OperatorError, match="mode: missing"):
        advance(CONFIG, seen(), action(OperatorVerb.SET_MODE))


@pytest.mark.parametrize("verb", [OperatorVerb.APPROVE, OperatorVerb.REJECT])
def test_a_decision_on_what_does_not_stand_is_refused(verb: OperatorVerb) -> None:
    with pytest.raises(OperatorError, match="proposal: 7 does not stand; standing: none"):
        advance(CONFIG, seen(), action(verb, proposal=7))


def test_a_proposal_is_void_once_the_controls_changed() -> None:
    plant, state = Plant(seed=0, noisy_from=0), RunState.initial("run", Mode.APPROVE)
    for _ in range(8):
        state = advance(CONFIG, state, plant.advance()).state
    assert [proposal.id for proposal in state.proposals] == [1]
    outcome = advance(CONFIG, state, action(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": 0.3}))
    assert [event.kind for event in outcome.events] == [EventKind.WITHDRAWN, EventKind.CONTROLS_CHANGED]
    with pytest.raises(OperatorError, match="proposal: 1 does not stand"):
        advance(CONFIG, outcome.state, action(OperatorVerb.APPROVE, proposal=1))


def test_changing_the_mode_withdraws_standing_proposals() -> None:
    plant, state = Plant(seed=0, noisy_from=0), RunState.initial("run", Mode.ADVISE)
    for _ in range(8):
        state = advance(CONFIG, state, plant.advance()).state
    outcome = advance(CONFIG, state, action(OperatorVerb.SET_MODE, mode=Mode.OBSERVE))
    assert [event.kind for event in outcome.events] == [EventKind.MODE_CHANGED, EventKind.WITHDRAWN]
    assert outcome.state.proposals == ()


def test_a_silence_lasts_as_long_as_was_said_and_hinders_no_action() -> None:
    plant, state = Plant(seed=0, noisy_from=0), RunState.initial("run", Mode.AUTO)
    state = advance(CONFIG, state, plant.advance()).state
    outcome = advance(CONFIG, state, action(OperatorVerb.SILENCE, target="run/mismatch", steps=8))
    state = outcome.state
    assert [(event.kind, event.detail["fingerprint"]) for event in outcome.events] == [
        (EventKind.SILENCED, "run/mismatch")
    ]
    events = []
    for _ in range(8):
        outcome = advance(CONFIG, state, plant.advance())
        state = outcome.state
        assert [silence.fingerprint for silence in state.silences] == ["run/mismatch"]
        events += outcome.events
    told = [event.kind for event in events if event.detail.get("fingerprint") == "run/mismatch"]
    assert told == [EventKind.INCIDENT_INHIBITED]
    assert EventKind.CONTROLS_CHANGED in {event.kind for event in events}
    state = advance(CONFIG, state, plant.advance()).state
    assert state.silences == ()


def test_a_silence_is_cancelled_and_a_wrong_one_refused() -> None:
    state = advance(CONFIG, seen(), action(OperatorVerb.SILENCE, target="reward")).state
    assert [(each.fingerprint, each.until_tick) for each in state.silences] == [("run/reward", None)]
    state = advance(CONFIG, state, action(OperatorVerb.UNSILENCE, target="reward")).state
    assert state.silences == ()
    with pytest.raises(OperatorError, match="target: 'reward' is not silenced; silenced: none"):
        advance(CONFIG, state, action(OperatorVerb.UNSILENCE, target="reward"))
    with pytest.raises(OperatorError, match="target: 'rewards' is no detector or fingerprint"):
        advance(CONFIG, state, action(OperatorVerb.SILENCE, target="rewards"))
    with pytest.raises(OperatorError, match="steps: 0 must be 1 to"):
        advance(CONFIG, state, action(OperatorVerb.SILENCE, target="reward", steps=0))


def test_whoever_looks_after_an_incident_is_on_record_until_it_gets_worse_or_begins_again() -> None:
    session = Session(mode=Mode.OBSERVE).run(10)
    outcome = session.tell(OperatorVerb.ACKNOWLEDGE, target="mismatch")
    [event] = outcome.events
    assert event.kind is EventKind.ACKNOWLEDGED
    assert (event.message, event.detail) == ("because", {"fingerprint": "run/mismatch", "issuer": "ada"})
    by = Acknowledgement(issuer="ada", reason="because", step=9)
    assert session.state.incidents["run/mismatch"].acknowledged == by
    session.run(5)
    assert session.state.incidents["run/mismatch"].acknowledged == by
    assert session.state.incidents["run/mismatch"].told
    session.plant.noisy_from = None
    session.run(60)
    assert session.state.incidents["run/mismatch"].phase is Phase.RESOLVED
    session.plant.noisy_from = 0
    session.run(10)
    assert session.state.incidents["run/mismatch"].phase is Phase.FIRING
    assert session.state.incidents["run/mismatch"].acknowledged is None


@pytest.mark.parametrize("target", ["reward", "run/reward"])
def test_what_is_not_open_cannot_be_acknowledged(target: str) -> None:
    session = Session(mode=Mode.OBSERVE).run(10)
    with pytest.raises(OperatorError, match=f"^target: '{target}' has no open incident; open: mismatch"):
        session.tell(OperatorVerb.ACKNOWLEDGE, target=target)


@pytest.mark.parametrize("verb", [OperatorVerb.APPROVE, OperatorVerb.REJECT])
@pytest.mark.parametrize(
    "changes", [{}, {"centering": True}, CENTRED | {"lr_scale": 0.5}, CENTRED | {"centering": None}]
)
def test_a_decision_on_other_changes_than_the_proposed_is_refused(verb: OperatorVerb, changes: dict[str, Any]) -> None:
    session = Session(mode=Mode.APPROVE).run(10)
    before = session.state
    with pytest.raises(OperatorError, match="are not those of proposal 1"):
        session.tell(verb, proposal=1, changes=changes)
    assert session.state == before
    assert session.tell(OperatorVerb.APPROVE, proposal=1, changes=CENTRED).state.overrides == CENTRED


def test_the_changes_of_a_proposal_are_what_it_sets_and_lifts_of_what_is_wanted() -> None:
    [proposal] = Session(mode=Mode.APPROVE).run(10).state.proposals
    assert proposal.changes({}) == CENTRED
    assert proposal.changes({"ratio_reference": "recomputed", "lr_scale": 0.5}) == {"lr_scale": None, "centering": True}
