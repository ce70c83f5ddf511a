"""A ledger that was restored from a backup, under a trainer that has gone on."""

from dataclasses import replace
from typing import Any

import pytest
from agent_runs import Plant, step_summary

from trimtab.agent.advance import Outcome, advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.replay import replay
from trimtab.agent.run_state import RunState
from trimtab.agent.rung import Rung
from trimtab.agent.state import Event, EventKind, Mode, OperatorAction, OperatorVerb
from trimtab.hooks.controls import Controls
from trimtab.hooks.fence import Accepted, fenced
from trimtab.hooks.records import StepSummary

AUTO = AgentConfig(mode=Mode.AUTO)


def action(verb: OperatorVerb, **fields: Any) -> OperatorAction:
    return OperatorAction(job="run", verb=verb, issuer="ada", reason="why", **fields)


def patch(**overrides: Any) -> OperatorAction:
    return action(OperatorVerb.PATCH_CONTROLS, overrides=overrides)


RESTORED = action(OperatorVerb.RESTORED)


def reporting(step: int, generation: int, overrides: dict[str, Any], **fields: Any) -> StepSummary:
    applied = Controls(ratio_reference="sampler").overlaid(overrides)
    return step_summary(step, generation=generation, overrides=overrides, applied=applied, **fields)


def folded(*records: StepSummary | OperatorAction) -> RunState:
    *_, last = replay(AUTO, RunState.initial("run", Mode.AUTO), records)
    return last.state


def of(outcome: Outcome, kind: EventKind) -> Event:
    [found] = [event for event in outcome.events if event.kind is kind]
    return found


BACKUP = (
    reporting(0, 0, {}),
    patch(clip_low=0.1),
    patch(clip_high=0.3),
    patch(clip_high=0.35),
    reporting(1, 3, {"clip_low": 0.1, "clip_high": 0.35}),
)
"""A ledger at generation 3, as backed up. Afterwards a person lifts clip_low, sets centering and changes clip_high:
the trainer is at generation 7."""
NOW = {"clip_high": 0.25, "centering": True}


@pytest.mark.parametrize("records", [BACKUP, (*BACKUP, RESTORED)], ids=["found out", "told"])
def test_the_trainers_overrides_hold_and_what_it_no_longer_has_is_wanted_no_more(records: tuple[Any, ...]) -> None:
    outcome = advance(AUTO, folded(*records), reporting(2, 7, NOW))
    state = outcome.state
    assert state.overrides == NOW
    assert (state.person_overrides, state.adopted) == ({}, NOW)
    assert (state.in_sync, outcome.command, state.generation) == (True, None, 7)
    event = of(outcome, EventKind.CONTROLS_TAKEN_OVER)
    assert event.detail["lifted"] == {"clip_low": 0.1, "clip_high": 0.35}
    assert event.detail["adopted"] == event.detail["after"] == NOW
    assert "clip_low = 0.1, clip_high = 0.35, which the trainer no longer has, is wanted no more" in event.message


def test_the_next_command_is_one_that_the_trainer_takes() -> None:
    state = advance(AUTO, folded(*BACKUP, RESTORED), reporting(2, 7, NOW)).state
    outcome = advance(AUTO, advance(AUTO, state, patch(centering=None)).state, reporting(3, 7, NOW))
    assert outcome.command is not None
    assert (outcome.command.generation, outcome.command.overrides) == (8, {"clip_high": 0.25})
    current = Accepted(generation=7, overrides=NOW)
    capabilities = reporting(3, 7, NOW).capabilities
    accepted = fenced(outcome.command, job="run", attempt=1, current=current, capabilities=capabilities)
    assert accepted == Accepted(generation=8, overrides={"clip_high": 0.25})


@pytest.mark.parametrize("changes", [1, 4, 5, 9])
def test_what_a_person_sets_before_the_trainer_reports_stands_above_it(changes: int) -> None:
    """However many generations that takes: none of them goes out before the trainer has said what it holds."""
    state = folded(*BACKUP, RESTORED)
    for i in range(changes):
        outcome = advance(AUTO, state, patch(clip_low=0.2 + i / 100))
        assert outcome.command is None
        state = outcome.state
    assert (state.generation, state.commanded) == (3 + changes, 3)
    wanted = {**NOW, "clip_low": 0.2 + (changes - 1) / 100}
    outcome = advance(AUTO, state, reporting(2, 7, NOW))
    assert outcome.state.overrides == wanted
    assert outcome.command is not None
    assert (outcome.command.generation, outcome.command.overrides) == (max(8, 3 + changes), wanted)


def test_a_summary_that_is_late_gets_no_command_out_of_a_backup() -> None:
    state = folded(*BACKUP, patch(clip_low=0.3), RESTORED)
    outcome = advance(AUTO, state, reporting(0, 7, NOW))
    assert (outcome.command, outcome.state) == (None, state)


def test_a_trainer_that_was_started_anew_gets_what_the_backup_wanted_and_it_is_on_record() -> None:
    told = advance(AUTO, folded(*BACKUP), RESTORED)
    assert of(told, EventKind.RESTORED).detail["wanted"] == {"clip_low": 0.1, "clip_high": 0.35}
    outcome = advance(AUTO, told.state, reporting(0, 0, {}, attempt=2))
    assert outcome.command is not None
    assert (outcome.command.generation, outcome.command.overrides) == (3, {"clip_low": 0.1, "clip_high": 0.35})


def test_a_remedy_that_the_trainer_does_not_have_is_dropped_whole() -> None:
    rung = Rung(
        remedy="score_centering",
        overrides={"ratio_reference": "recomputed", "centering": True},
        incident="run/asymmetry",
        generation=4,
    )
    state = folded(*BACKUP)
    state = replace(state, generation=4, commanded=4, ladder=replace(state.ladder, rungs=(rung,)))
    has = {"ratio_reference": "recomputed", "clip_low": 0.1}
    outcome = advance(AUTO, state, reporting(2, 7, has))
    assert outcome.state.ladder.rungs == ()
    assert outcome.state.overrides == has
    assert outcome.state.person_overrides == {"clip_low": 0.1}
    assert of(outcome, EventKind.CONTROLS_TAKEN_OVER).detail["lifted"] == {"centering": True, "clip_high": 0.35}


def test_what_the_trainer_refuses_was_not_lifted() -> None:
    refusal = ("clip_low: restart in this trainer",)
    outcome = advance(AUTO, folded(*BACKUP), reporting(2, 7, {"clip_high": 0.35}, refusals=refusal))
    assert outcome.state.person_overrides == {"clip_low": 0.1, "clip_high": 0.35}


def test_the_agent_acts_no_more_until_a_person_sets_the_mode() -> None:
    plant, state, kinds = Plant(seed=0, noisy_from=12), RunState.initial("run", Mode.AUTO), []
    for step in range(120):
        if step == 10:
            state = advance(AUTO, state, RESTORED).state
        outcome = advance(AUTO, state, plant.advance())
        state = outcome.state
        plant.obey(outcome.command)
        kinds += [event.kind for event in outcome.events]
    assert (plant.overrides, state.mode) == ({}, Mode.AUTO)
    assert state.ladder.locked == (
        "what was decided after that backup is lost; set the mode again to let the agent act"
    )
    assert EventKind.CONTROLS_CHANGED not in kinds
    assert kinds.count(EventKind.REFUSED) == 1
    state = advance(AUTO, state, action(OperatorVerb.SET_MODE, mode=Mode.AUTO)).state
    for _ in range(40):
        outcome = advance(AUTO, state, plant.advance())
        state = outcome.state
        plant.obey(outcome.command)
    assert plant.overrides == {"ratio_reference": "recomputed", "centering": True}


def test_a_restored_ledger_under_which_nothing_happened_since_goes_on_as_it_was() -> None:
    outcome = advance(AUTO, folded(*BACKUP, RESTORED), reporting(2, 3, {"clip_low": 0.1, "clip_high": 0.35}))
    assert outcome.events == ()
    assert (outcome.command, outcome.state.behind, outcome.state.in_sync) == (None, False, True)
    assert outcome.state.person_overrides == {"clip_low": 0.1, "clip_high": 0.35}
