"""The policy on the plant: what it does in which mode, when it waits, what it refuses, and what it puts on record."""

from dataclasses import replace

import pytest
from agent_runs import CAPABLE, Plant
from agent_sessions import CENTRED, Session

from trimtab.agent.operator import OperatorError
from trimtab.agent.state import EventKind, Mode, OperatorVerb, Phase
from trimtab.hooks.controls import Controls, Liveness
from trimtab.hooks.records import NonFinite


def test_observe_neither_proposes_nor_refuses() -> None:
    session = Session(mode=Mode.OBSERVE).run(60)
    kinds = {event.kind for event in session.events}
    assert kinds <= {
        EventKind.ATTEMPT_STARTED,
        EventKind.VERDICT_CHANGED,
        EventKind.INCIDENT_PENDING,
        EventKind.INCIDENT_FIRING,
        EventKind.INCIDENT_INHIBITED,
        EventKind.INCIDENT_RESOLVED,
    }
    assert session.state.generation == 0


@pytest.mark.parametrize("mode", [Mode.ADVISE, Mode.APPROVE])
def test_advice_stands_once_and_changes_nothing(mode: Mode) -> None:
    session = Session(mode=mode).run(60)
    proposed = session.of(EventKind.PROPOSED)
    assert [event.detail["remedy"] for event in proposed] == ["score_centering"]
    assert proposed[0].detail["overrides"] == CENTRED
    assert len(session.state.proposals) == 1
    assert session.state.generation == 0
    assert session.plant.overrides == {}


def test_an_approved_proposal_is_carried_out_and_verified_like_any_other() -> None:
    session = Session(mode=Mode.APPROVE).run(10)
    outcome = session.tell(OperatorVerb.APPROVE, proposal=1)
    assert [event.kind for event in outcome.events] == [EventKind.APPROVED, EventKind.CONTROLS_CHANGED]
    assert outcome.command is not None
    assert (outcome.command.generation, outcome.command.issuer) == (1, "ada")
    assert outcome.command.overrides == CENTRED
    session.run(60)
    assert session.plant.overrides == CENTRED
    assert session.state.proposals == ()
    assert session.state.incidents["run/mismatch"].phase is Phase.RESOLVED


def test_after_a_rejection_the_next_rung_is_proposed() -> None:
    session = Session(mode=Mode.APPROVE).run(10)
    session.tell(OperatorVerb.REJECT, proposal=1)
    session.run(2)
    assert [p.remedy for p in session.state.proposals] == ["recomputed_ratio"]
    assert "rejected by ada" in session.state.ladder.refused["score_centering"]


def test_a_proposal_whose_incident_ends_is_withdrawn() -> None:
    session = Session(Plant(seed=0, noisy_from=0), mode=Mode.APPROVE).run(10)
    session.plant.noisy_from = None
    session.run(40)
    assert session.state.proposals == ()
    assert [event.message for event in session.of(EventKind.WITHDRAWN)] == ["its incident ended"]


def test_nothing_is_done_before_the_run_has_settled() -> None:
    session = Session(**{"policy.settle": 15}).run(30)
    assert session.changes()[0] == (15, CENTRED)


def test_a_remedy_that_the_trainer_never_reports_stops_further_action() -> None:
    session = Session().run(100, deaf=True)
    assert len(session.changes()) == 1


def test_a_command_is_sent_again_until_it_is_reported() -> None:
    session = Session().run(6, deaf=True)
    for _ in range(5):
        outcome = session.take(session.plant.advance(), deaf=True)
        assert outcome.command is not None
        assert outcome.command.generation == 1
    assert session.take(session.plant.advance()).command is not None
    assert session.take(session.plant.advance()).command is None


def test_broken_inputs_are_never_remedied_and_the_refusal_is_on_record_once() -> None:
    session = Session().run(5)
    session.run(30, nonfinite={"train_logprobs": NonFinite(nan=3)})
    assert session.changes() == []
    [refused] = session.of(EventKind.REFUSED)
    assert refused.detail["fault"] == "nonfinite"
    assert "train_logprobs: 3 NaN" in refused.message


def test_an_entropy_that_is_never_finite_stands_in_no_remedys_way() -> None:
    session = Session().run(20, nonfinite={"entropy": NonFinite(nan=3)})
    assert session.changes() == [(5, CENTRED)]


def test_a_fault_of_the_pipeline_is_never_remedied() -> None:
    session = Session(**{"detectors.pipeline.everywhere": 0.01}).run(30)
    assert session.changes() == []
    assert [event.detail["fault"] for event in session.of(EventKind.REFUSED)] == ["scales"]


def test_a_collapsed_effective_sample_is_never_remedied() -> None:
    session = Session(**{"policy.ess_floor": 0.99}).run(30)
    assert session.changes() == []
    assert [event.detail["fault"] for event in session.of(EventKind.REFUSED)] == ["ess"]


def test_every_capability_refusal_is_recorded_once_and_named() -> None:
    bare = replace(CAPABLE, controls={"clip_low": Liveness.LIVE})
    session = Session(Plant(seed=0, noisy_from=0, capabilities=bare)).run(60)
    assert session.changes() == []
    messages = [(event.detail.get("remedy"), event.message) for event in session.of(EventKind.REFUSED)]
    assert messages == [
        ("score_centering", "ratio_reference: absent in this trainer"),
        ("recomputed_ratio", "ratio_reference: absent in this trainer"),
        ("calibrated_clipping", "clip_mode: absent in this trainer"),
        ("truncated_importance", "ratio_reference: absent in this trainer"),
        ("sampler_precision", "sampler_format: 'bf16' is the highest already"),
        ("restore_checkpoint", "restore: no checkpoint was taken while the run was healthy"),
        (None, "no remedy is left to try"),
    ]


def test_a_remedy_that_the_trainer_refuses_is_taken_back_and_the_next_tried() -> None:
    session = Session().run(6, deaf=True)
    refusing = session.plant.advance()
    session.plant.generation = 1
    refusal = ("centering: no head in this batch",)
    session.take(replace(refusing, generation=1, refusals=refusal), deaf=True)
    assert session.state.overrides == {}
    assert session.state.generation == 2
    assert session.state.ladder.refused["score_centering"] == "the trainer refused: centering: no head in this batch"
    session.run(20)
    assert session.plant.overrides == {"ratio_reference": "recomputed"}


def test_a_persons_control_is_never_overwritten() -> None:
    session = Session()
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"ratio_reference": "sampler", "clip_high": 0.3})
    session.run(60)
    assert session.plant.overrides == {"ratio_reference": "sampler", "clip_high": 0.3, "clip_mode": "calibrated"}
    refused = [event.message for event in session.of(EventKind.REFUSED)][:2]
    assert refused == ["ratio_reference: a person set it to 'sampler'"] * 2


def test_what_the_run_does_already_is_passed_over() -> None:
    own = Controls(ratio_reference="sampler", clip_mode="calibrated", sampler_format="bf16")
    allow = ["calibrated_clipping", "sampler_precision", "recomputed_ratio"]
    session = Session(**{"policy.allow": allow}).run(30, deaf=True, applied=replace(own, ratio_reference="recomputed"))
    assert session.changes() == []
    session = Session(**{"policy.allow": allow}).run(20, deaf=True, applied=own)
    assert session.changes() == [(5, {"ratio_reference": "recomputed"})]
    session = Session(**{"policy.allow": allow[:2]}).run(20, deaf=True, applied=own)
    refused = [(event.detail.get("remedy"), event.message) for event in session.of(EventKind.REFUSED)]
    assert refused == [
        ("calibrated_clipping", "already in effect"),
        ("sampler_precision", "sampler_format: 'bf16' is the highest already"),
        (None, "no remedy is left to try"),
    ]


def test_the_budget_caps_actions() -> None:
    session = Session(**{"policy.budget": 0}).run(60)
    assert session.changes() == []


def test_the_runs_own_changes_are_on_record() -> None:
    session = Session(Plant(seed=0), mode=Mode.OBSERVE).run(3)
    session.plant.own = replace(session.plant.own, sampler_format="nvfp4")
    session.run(2)
    [event] = session.of(EventKind.RUN_CHANGED_CONTROLS)
    assert (event.step, event.detail["changed"]) == (3, {"sampler_format": ["bf16", "nvfp4"]})


def test_what_cannot_be_had_any_more_is_not_approved() -> None:
    session = Session(mode=Mode.APPROVE).run(10)
    session.run(1, nonfinite={"train_logprobs": NonFinite(nan=3)})
    with pytest.raises(OperatorError, match="no remedy for broken inputs: train_logprobs: 3 NaN"):
        session.tell(OperatorVerb.APPROVE, proposal=1)
    session.run(1, capabilities=replace(CAPABLE, sampler_head=0))
    with pytest.raises(OperatorError, match="cannot be had any more: centering: the rollouts record no sampler head"):
        session.tell(OperatorVerb.APPROVE, proposal=1)
    assert session.changes() == []


def test_a_proposal_that_nobody_answers_is_withdrawn_and_made_again_from_what_is_seen_then() -> None:
    session = Session(mode=Mode.APPROVE, **{"policy.expire": 30}).run(10)
    [first] = session.state.proposals
    session.run(first.until_tick - session.state.tick - 1)
    assert session.state.proposals == (first,)
    session.run(1)
    [event] = session.of(EventKind.WITHDRAWN)
    assert (event.step, event.message) == (first.step + 30, "nobody answered within 30 steps")
    [second] = session.state.proposals
    assert (second.id, second.remedy, second.step) == (first.id + 1, first.remedy, first.step + 30)
    with pytest.raises(OperatorError, match="proposal: 1 does not stand; standing: 2"):
        session.tell(OperatorVerb.APPROVE, proposal=first.id)
