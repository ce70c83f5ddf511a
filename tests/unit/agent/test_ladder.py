"""Up and down the ladder: the next remedy where one does not help, and back once the cause is gone."""

from dataclasses import replace

import pytest
from agent_runs import Plant
from agent_sessions import CENTRED, Session

from trimtab.agent.operator import OperatorError
from trimtab.agent.state import Direction, EventKind, Mode, OperatorVerb, Phase
from trimtab.hooks.records import StepSummary


def test_a_remedy_that_does_not_help_is_followed_by_the_next_after_verification() -> None:
    allow = ["calibrated_clipping", "recomputed_ratio"]
    session = Session(**{"policy.allow": allow, "policy.verify": 12, "policy.canary": 12})
    # This trainer reports recomputed ratios and yet takes the sampler's: the remedy is in effect, and does nothing.
    session.plant.__class__ = StubbornPlant
    session.run(80)
    first, second = session.changes()
    assert first == (5, {"ratio_reference": "recomputed"})
    assert second == (18, {"ratio_reference": "recomputed", "clip_mode": "calibrated"})
    exhausted = [event for event in session.of(EventKind.REFUSED) if event.detail.get("fault") == "exhausted"]
    assert len(exhausted) == 1


class StubbornPlant(Plant):
    """Acknowledges every control and goes on as before."""

    def _summary(self, noisy: bool) -> StepSummary:
        applied, overrides = self.applied, self.overrides
        self.overrides = {}
        summary = super()._summary(noisy)
        self.overrides = overrides
        return replace(summary, applied=applied, overrides=dict(overrides))


def test_the_remedy_is_held_while_the_mismatch_lasts_and_taken_back_after() -> None:
    session = Session(**{"policy.relax_after": 30}).run(100)
    assert session.plant.overrides == CENTRED
    session.plant.noisy_from = None
    session.run(60)
    assert session.plant.overrides == {}
    assert session.changes()[-1][1] == {}
    assert session.state.ladder.rungs == ()


def test_in_approve_mode_relaxing_needs_a_person_too() -> None:
    session = Session(**{"policy.relax_after": 30}).run(60)
    session.tell(OperatorVerb.SET_MODE, mode=Mode.APPROVE)
    session.plant.noisy_from = None
    session.run(60)
    assert session.plant.overrides == CENTRED
    [proposal] = session.state.proposals
    assert (proposal.remedy, proposal.overrides) == ("score_centering", {})
    session.tell(OperatorVerb.APPROVE, proposal=proposal.id)
    session.run(2)
    assert session.plant.overrides == {}


def relaxable(mode: Mode = Mode.APPROVE) -> Session:
    """A remedy in force, its cause gone for long: relaxing is proposed, and waits."""
    session = Session(**{"policy.relax_after": 30}).run(60)
    session.tell(OperatorVerb.SET_MODE, mode=mode)
    session.plant.noisy_from = None
    session.run(60)
    [proposal] = session.state.proposals
    assert proposal.direction is Direction.RELAX
    return session


def test_a_relaxation_is_withdrawn_when_its_cause_is_back() -> None:
    session = relaxable()
    [proposal] = session.state.proposals
    session.plant.noisy_from = 0
    session.run(5)
    assert session.state.proposals == ()
    assert [event.message for event in session.of(EventKind.WITHDRAWN)] == ["its cause is back"]
    with pytest.raises(OperatorError, match="does not stand"):
        session.tell(OperatorVerb.APPROVE, proposal=proposal.id)
    session.run(60)
    assert session.plant.overrides == CENTRED
    assert session.plant.reward > 0.9


def test_a_rejected_relaxation_refuses_no_remedy() -> None:
    session = relaxable()
    session.tell(OperatorVerb.REJECT, proposal=session.state.proposals[0].id)
    assert session.state.ladder.refused == {}
    assert session.state.ladder.calm == 0


def test_the_direction_of_a_change_is_on_record() -> None:
    session = relaxable()
    session.tell(OperatorVerb.APPROVE, proposal=session.state.proposals[0].id)
    assert [event.detail["direction"] for event in session.of(EventKind.CONTROLS_CHANGED)] == ["tighten", "relax"]


class HarmedPlant(Plant):
    """Centering silences the signature here, and helps the run not at all."""

    def advance(self) -> StepSummary:
        reward = self.reward
        summary = super().advance()
        if self.noisy_from is not None and self.step >= self.noisy_from and self.overrides.get("clip_mode") is None:
            self.reward = reward + 0.06 * (0.10 - reward)
        return summary


def test_a_remedy_that_silences_the_signature_and_not_the_harm_is_followed_by_the_next() -> None:
    session = Session(
        HarmedPlant(seed=0, noisy_from=40), **{"policy.allow": ["score_centering", "calibrated_clipping"]}
    )
    session.run(160)
    (first, centred), (second, both) = session.changes()
    assert (centred, both) == (CENTRED, CENTRED | {"clip_mode": "calibrated"})
    applied = session.of(EventKind.CONTROLS_APPLIED)[0].step
    assert session.config.policy.verify <= second - applied
    proposed = session.of(EventKind.PROPOSED)[1]
    assert proposed.detail["incident"] in ("run/reward", "run/entropy")
    assert "score_centering is in effect, and in 20 steps the run got no better" in proposed.message
    assert session.state.incidents["run/mismatch"].phase is Phase.RESOLVED
    assert first < 50


def test_a_run_that_recovers_under_its_remedy_climbs_no_further() -> None:
    session = Session(Plant(seed=0, noisy_from=40), **{"policy.settle": 70}).run(200)
    assert [overrides for _, overrides in session.changes()] == [CENTRED]
    assert EventKind.INCIDENT_INHIBITED in {e.kind for e in session.events if e.detail.get("detector") == "reward"}
    assert session.plant.reward > 0.9
