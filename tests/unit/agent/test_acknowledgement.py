"""What the trainer reports against what is wanted: generations, refusals, overrides that nobody here asked for."""

from typing import Any

import numpy as np
import pytest
from agent_runs import Plant, step_summary

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import EventKind, Mode, OperatorAction, OperatorVerb
from trimtab.hooks.controls import Controls
from trimtab.hooks.records import StepSummary

AUTO = AgentConfig(mode=Mode.AUTO)


def test_an_agent_from_an_old_backup_never_goes_below_the_trainers_generation() -> None:
    fresh = RunState.initial("run")
    outcome = advance(AUTO, fresh, step_summary(0, generation=7))
    assert (outcome.state.generation, outcome.command) == (7, None)
    patch = OperatorAction(
        job="run", verb=OperatorVerb.PATCH_CONTROLS, issuer="ada", reason="r", overrides={"clip_high": 0.3}
    )
    older = advance(AUTO, fresh, patch).state
    outcome = advance(AUTO, older, step_summary(0, generation=7))
    assert outcome.command is not None
    assert (outcome.command.generation, outcome.command.overrides) == (8, {"clip_high": 0.3})


CENTRED = {"ratio_reference": "recomputed", "centering": True}


def patch_of(**overrides: Any) -> OperatorAction:
    return OperatorAction(job="run", verb=OperatorVerb.PATCH_CONTROLS, issuer="ada", reason="r", overrides=overrides)


def reporting(step: int, generation: int, overrides: dict[str, Any], **fields: Any) -> StepSummary:
    applied = Controls(ratio_reference="sampler").overlaid(overrides)
    return step_summary(step, generation=generation, overrides=overrides, applied=applied, **fields)


def test_unknown_overrides_of_a_trainer_ahead_are_kept_on_record_and_can_be_lifted() -> None:
    outcome = advance(AUTO, RunState.initial("run"), reporting(0, 7, CENTRED))
    [event] = [e for e in outcome.events if e.kind is EventKind.CONTROLS_TAKEN_OVER]
    assert event.detail == {"generation": 7, "reported": 7, "adopted": CENTRED, "after": CENTRED}
    state = outcome.state
    assert (state.overrides, state.person_overrides, state.generation) == (CENTRED, {}, 7)
    assert (state.in_sync, outcome.command) == (True, None)
    quiet = advance(AUTO, state, reporting(1, 7, CENTRED))
    assert quiet.events == ()
    state = advance(AUTO, quiet.state, patch_of(centering=None)).state
    assert state.overrides == {"ratio_reference": "recomputed"}
    lifted = advance(AUTO, state, reporting(2, 7, CENTRED))
    assert lifted.command is not None
    assert (lifted.command.generation, lifted.command.overrides) == (8, {"ratio_reference": "recomputed"})


def test_a_restart_of_the_trainer_brings_adopted_overrides_back() -> None:
    state = advance(AUTO, RunState.initial("run"), reporting(0, 7, CENTRED)).state
    outcome = advance(AUTO, state, reporting(0, 0, {}, attempt=2))
    assert outcome.command is not None
    assert (outcome.command.generation, outcome.command.overrides) == (7, CENTRED)


@pytest.mark.parametrize(("reported", "stated"), [(1, 2), (5, 6)])
def test_what_is_wanted_is_stated_above_a_generation_that_was_never_sent(reported: int, stated: int) -> None:
    state = advance(AUTO, RunState.initial("run"), patch_of(clip_high=0.3)).state
    outcome = advance(AUTO, state, reporting(0, reported, {"clip_high": 0.25, "centering": True}))
    assert outcome.command is not None
    assert outcome.command.generation == outcome.state.generation == stated
    assert outcome.command.overrides == {"clip_high": 0.3, "centering": True}
    obeyed = advance(AUTO, outcome.state, reporting(1, stated, outcome.command.overrides))
    assert [event.kind for event in obeyed.events] == [EventKind.CONTROLS_APPLIED]
    assert (obeyed.command, obeyed.state.in_sync, obeyed.state.generation) == (None, True, stated)


def test_an_extra_override_under_our_own_generation_is_seen_too() -> None:
    state = advance(AUTO, RunState.initial("run"), reporting(0, 0, {})).state
    state = advance(AUTO, state, patch_of(clip_high=0.3)).state
    state = advance(AUTO, state, reporting(1, 0, {})).state
    state = advance(AUTO, state, reporting(2, 1, {"clip_high": 0.3})).state
    assert (state.in_sync, state.commanded) == (True, 1)
    outcome = advance(AUTO, state, reporting(3, 1, {"clip_high": 0.3, "lr_scale": 0.5}))
    assert outcome.state.adopted == {"lr_scale": 0.5}
    assert outcome.state.overrides == {"lr_scale": 0.5, "clip_high": 0.3}
    assert (outcome.command, outcome.state.in_sync, outcome.state.generation) == (None, True, 1)


def test_a_refused_override_is_named_and_not_sent_for_ever() -> None:
    state = advance(AUTO, RunState.initial("run"), reporting(0, 0, {})).state
    state = advance(AUTO, state, patch_of(clip_high=0.3, centering=True)).state
    state = advance(AUTO, state, reporting(1, 0, {})).state
    refusal = ("centering: no head in this batch",)
    outcome = advance(AUTO, state, reporting(2, 1, {"clip_high": 0.3}, refusals=refusal))
    [event] = [e for e in outcome.events if e.kind is EventKind.CONTROLS_APPLIED]
    assert event.message == "generation 1 is in effect, without centering (centering: no head in this batch)"
    assert event.detail == {"generation": 1, "left_out": ["centering: no head in this batch"]}
    assert (outcome.command, outcome.state.in_sync) == (None, True)


def test_an_override_left_out_without_a_reason_stays_due_under_its_generation() -> None:
    state = advance(AUTO, RunState.initial("run"), reporting(0, 0, {})).state
    state = advance(AUTO, state, patch_of(clip_high=0.3)).state
    for step in range(1, 5):
        outcome = advance(AUTO, state, reporting(step, min(step - 1, 1), {}))
        state = outcome.state
        assert outcome.command is not None
        assert outcome.command.generation == 1
    assert not state.in_sync


@pytest.mark.parametrize("seed", range(4))
def test_with_a_third_of_the_messages_lost_it_still_converges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plant, state = Plant(seed=seed, noisy_from=0), RunState.initial("run", Mode.AUTO)
    for _ in range(120):
        summary = plant.advance()
        if rng.random() < 0.3:
            continue
        outcome = advance(AUTO, state, summary)
        state = outcome.state
        if rng.random() >= 0.3:
            plant.obey(outcome.command)
    assert plant.overrides == state.overrides == {"ratio_reference": "recomputed", "centering": True}
    assert plant.generation == state.generation == 1
    assert plant.reward > 0.9


def test_a_trainer_that_ignores_a_command_is_on_record_once_a_generation() -> None:
    patience = AUTO.policy.verify
    state = advance(
        AUTO, advance(AUTO, RunState.initial("run"), reporting(0, 0, {})).state, patch_of(clip_high=0.3)
    ).state
    rows = []
    for step in range(1, 4 * patience - 1):
        if step == 3 * patience:
            state = advance(AUTO, state, patch_of(clip_high=0.4)).state
        outcome = advance(AUTO, state, reporting(step, 0, {}))
        state = outcome.state
        assert outcome.command is not None
        assert not state.in_sync
        rows += [(step, e.detail) for e in outcome.events if e.kind is EventKind.CONTROLS_IGNORED]
    assert rows == [(patience, {"generation": 1, "reported": 0})]
    outcomes = [advance(AUTO, state, reporting(4 * patience - 1, 0, {}))]
    assert [e.detail["generation"] for e in outcomes[0].events if e.kind is EventKind.CONTROLS_IGNORED] == [2]


def test_a_trainer_that_obeys_in_time_is_never_on_record() -> None:
    state = advance(
        AUTO, advance(AUTO, RunState.initial("run"), reporting(0, 0, {})).state, patch_of(clip_high=0.3)
    ).state
    kinds = []
    for step in range(1, 100):
        late = step % AUTO.policy.verify == 0
        record = reporting(step, 0, {}) if late or step == 1 else reporting(step, 1, {"clip_high": 0.3})
        outcome = advance(AUTO, state, record)
        state = outcome.state
        kinds += [e.kind for e in outcome.events]
    assert EventKind.CONTROLS_IGNORED not in kinds


def test_no_remedy_is_put_on_top_of_one_that_was_never_applied() -> None:
    plant, state, kinds = Plant(seed=0, noisy_from=12), RunState.initial("run", Mode.AUTO), []
    for _ in range(120):
        outcome = advance(AUTO, state, plant.advance())
        state = outcome.state
        kinds += [e.kind for e in outcome.events]
    assert [rung.remedy for rung in state.ladder.rungs] == ["score_centering"]
    assert kinds.count(EventKind.CONTROLS_CHANGED) == 1
    assert kinds.count(EventKind.CONTROLS_IGNORED) == 1
    assert not state.in_sync
