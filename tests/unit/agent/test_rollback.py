"""A change that does harm is taken back, whoever made it."""

from dataclasses import replace

import pytest
from agent_runs import Plant
from agent_sessions import CENTRED, Session

from trimtab.agent.operator import OperatorError
from trimtab.agent.state import EventKind, Mode, OperatorVerb
from trimtab.hooks.records import NonFinite, StepSummary

WRONG = {"clip_high": 5.0}


class FragilePlant(Plant):
    """A healthy run whose reward falls while `clip_high` is wide."""

    def advance(self) -> StepSummary:
        summary = super().advance()
        if self.applied.clip_high > 1:
            self.reward = max(self.reward - 0.08, 0.7)
        return summary


class CentringHurts(Plant):
    """The mismatch does nothing to this run, and centering makes it worse."""

    def advance(self) -> StepSummary:
        reward = self.reward
        summary = super().advance()
        self.reward = max(reward - 0.03, 0.02) if self.applied.centering else min(reward + 0.02, 0.95)
        return summary


def healthy(mode: Mode = Mode.AUTO, **settings: object) -> Session:
    return Session(FragilePlant(seed=0), mode, **settings).run(40)


def test_a_wrong_control_that_a_person_forced_is_taken_back() -> None:
    session = healthy()
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides=WRONG)
    session.run(30)
    assert session.state.person_overrides == {}
    assert session.plant.overrides == {}
    [undone] = session.of(EventKind.ROLLED_BACK)
    assert undone.detail["undone"] == 1
    assert "reward_mean" in undone.message
    [harmful] = session.of(EventKind.CHANGE_HARMFUL)
    assert harmful.detail["evidence"]["reward_mean_after"] < harmful.detail["evidence"]["reward_mean_before"]
    session.run(40)
    assert session.plant.reward > 0.9


def test_what_a_person_had_set_before_is_set_again() -> None:
    session = healthy()
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": 0.3})
    session.run(30)
    assert len(session.of(EventKind.CHANGE_UNHARMFUL)) == 1
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides=WRONG)
    session.run(30)
    assert session.state.person_overrides == {"clip_high": 0.3}


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ADVISE, Mode.APPROVE])
def test_in_other_modes_the_harm_is_told_and_left(mode: Mode) -> None:
    session = healthy(mode)
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides=WRONG)
    session.run(30)
    assert session.state.person_overrides == WRONG
    assert len(session.of(EventKind.CHANGE_HARMFUL)) == 1
    assert session.of(EventKind.ROLLED_BACK) == []


def test_a_remedy_of_the_agents_that_does_harm_is_taken_back_and_out_for_the_episode() -> None:
    session = Session(CentringHurts(seed=0, noisy_from=0), **{"policy.allow": ["score_centering"], "policy.settle": 30})
    session.run(80)
    assert [overrides for _, overrides in session.changes()] == [CENTRED, {}]
    assert "did harm" in session.state.ladder.refused["score_centering"]


def test_what_cannot_be_judged_twice_is_taken_back() -> None:
    session = Session(Plant(seed=0)).run(30, scalars={})
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": 0.3})
    session.run(45, scalars={})
    assert len(session.of(EventKind.CHANGE_INCONCLUSIVE)) == 1
    [harmful] = session.of(EventKind.CHANGE_HARMFUL)
    assert "could not be judged twice" in harmful.message
    assert session.state.person_overrides == {}
    changed = session.of(EventKind.CONTROLS_APPLIED)[0].step
    assert harmful.step - changed == 2 * session.config.policy.canary - 1


def test_a_value_that_is_not_finite_takes_it_back_at_once() -> None:
    session = healthy()
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": 0.3})
    session.run(4)
    session.run(1, nonfinite={"train_logprobs": NonFinite(nan=2)})
    assert session.state.person_overrides == {}


def test_two_rollbacks_lock_the_agent_out_until_a_person_sets_its_mode() -> None:
    session = healthy()
    for _ in range(2):
        session.tell(OperatorVerb.PATCH_CONTROLS, overrides=WRONG)
        session.run(60)
    assert len(session.of(EventKind.ROLLED_BACK)) == 2
    assert len(session.of(EventKind.LOCKED_OUT)) == 1
    session.plant.noisy_from = 0
    session.run(40)
    assert session.state.overrides == {}
    assert [e.detail["fault"] for e in session.of(EventKind.REFUSED) if "fault" in e.detail] == ["locked"]
    session.tell(OperatorVerb.SET_MODE, mode=Mode.AUTO)
    session.run(2)
    assert session.plant.overrides == CENTRED


def test_what_turns_critical_under_a_persons_change_takes_it_back_at_once_and_what_stays_is_remedied() -> None:
    session = Session(Plant(seed=0, noisy_from=21)).run(20)
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": 0.3})
    session.run(60)
    (_, patched), (undone, after), (remedied, centred) = session.changes()
    assert (patched, after, centred) == ({"clip_high": 0.3}, {}, CENTRED)
    assert "since it is in effect, mismatch: " in session.of(EventKind.ROLLED_BACK)[0].message
    assert undone <= 24
    assert remedied - undone == session.config.policy.cooldown


def test_a_persons_change_in_a_run_with_a_signature_already_holds_up_no_remedy() -> None:
    session = Session(Plant(seed=0, noisy_from=0), Mode.OBSERVE).run(12)
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": 0.3})
    session.run(2)
    session.tell(OperatorVerb.SET_MODE, mode=Mode.AUTO)
    session.run(2)
    assert session.plant.overrides == CENTRED | {"clip_high": 0.3}


def test_a_fall_that_began_with_the_remedys_cause_takes_nothing_back() -> None:
    session = Session(CentringHurts(seed=0, noisy_from=30), **{"policy.allow": ["score_centering"]}).run(80)
    [told] = session.of(EventKind.CHANGE_UNHARMFUL)
    assert "its cause is as new as it is" in told.message
    assert session.plant.overrides == CENTRED


def test_no_action_is_made_that_the_budget_could_not_take_back() -> None:
    assert Session(**{"policy.budget": 1}).run(60).changes() == []
    session = Session(CentringHurts(seed=0, noisy_from=0), **{"policy.budget": 2, "policy.settle": 30}).run(200)
    assert [overrides for _, overrides in session.changes()] == [CENTRED, {}]


def test_a_rollback_that_the_budget_has_no_room_for_is_told() -> None:
    session = healthy(**{"policy.budget": 0})
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides=WRONG)
    session.run(30)
    [told] = session.of(EventKind.LOCKED_OUT)
    assert "take generation 1 back" in told.message
    assert session.state.person_overrides == WRONG


def test_the_kill_switch_lifts_everything_and_nothing_is_set_until_the_mode_is() -> None:
    session = Session().run(20)
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": 0.3})
    session.run(2)
    session.tell(OperatorVerb.KILL)
    assert (session.state.overrides, session.state.mode) == ({}, Mode.OBSERVE)
    session.run(40)
    assert session.plant.overrides == {}
    with pytest.raises(OperatorError, match="kill switch"):
        session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": 0.3})
    session.tell(OperatorVerb.SET_MODE, mode=Mode.AUTO)
    session.run(30)
    assert session.plant.overrides == CENTRED


def test_after_a_kill_what_another_agent_set_is_not_kept() -> None:
    session = Session().run(20)
    session.tell(OperatorVerb.KILL)
    foreign = replace(session.plant.advance(), generation=9, overrides={"clip_low": 0.1})
    outcome = session.take(foreign)
    assert outcome.command is not None
    assert (outcome.command.generation, outcome.command.overrides) == (10, {})


def test_a_rollback_asks_for_no_restore_again() -> None:
    session = healthy()
    session.state = replace(session.state, person_overrides={"restore": "1:40"}, generation=1, commanded=1)
    session.plant.generation, session.plant.overrides = 1, {"restore": "1:40"}
    session.run(2)
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"restore": None, **WRONG})
    session.run(30)
    assert len(session.of(EventKind.ROLLED_BACK)) == 1
    assert session.state.overrides == {}


def test_what_was_said_to_a_repeated_summary_is_not_taken_for_another_agents() -> None:
    session = healthy()
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": 0.3})
    # The trainer hears of it in the answer to a summary that it sent twice, and a person lifts it at once.
    assert session.plant.overrides == {"clip_high": 0.3}
    session.tell(OperatorVerb.PATCH_CONTROLS, overrides={"clip_high": None})
    session.plant.generation, session.plant.overrides = 1, {"clip_high": 0.3}
    session.run(3)
    assert session.plant.overrides == {}
    assert session.of(EventKind.CONTROLS_TAKEN_OVER) == []


def test_a_remedy_in_a_run_without_rewards_stays_where_it_silences_what_asked_for_it() -> None:
    session = Session(Plant(seed=0, noisy_from=0), **{"policy.settle": 20}).run(100, scalars={})
    assert [overrides for _, overrides in session.changes()] == [CENTRED]
    [told] = session.of(EventKind.CHANGE_UNHARMFUL)
    assert "is judged by what asked for it" in told.message
